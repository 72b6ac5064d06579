/* Limit of writes: the disk is looked at ten times a second, and writers get shares of the space
 * left.
 */
#include "space.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "util.h"

#define TICK_MS 100u
#ifndef SPW_WAIT_MS /* tests do not wait */
#define SPW_WAIT_MS (2 * TICK_MS)
#endif
#define REPORT_MS 1000u
#define SHRINK_MS 5000u /* while nothing is made free, headroom falls to 1/e in this time */
#define FULL_PART 16    /* below this fraction of the slow part the level is FULL */
#define PROGRESS_BYTES (1 << 20)
#define REFUSAL_KEPT_MS 20000u /* clients ask again after 15 s at the latest */
#define WAITERS_MAX 32u        /* of the server's 512 threads */
#define WRITE_MAX_BYTES (9 << 20) /* the server's buffer: a larger request is an ALLOCATE */
#define FLOWS 256u
#define FLOW_IDLE_MS 2000u

struct flow {
	uint64_t client; /* hash of the address */
	uint64_t top;
	uint64_t asked_ms;
	uint32_t weight; /* 0: unused */
	int64_t tokens;  /* bytes that it may write; a write may leave a debt */
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t granted;
	struct spw_limits limits;
	struct spw_space_ops ops;

	atomic_int_fast64_t headroom;
	atomic_int_fast64_t pending; /* taken, and not yet seen on the disk or in `unsealed` */
	atomic_int_fast64_t slow_below;
	atomic_uint_fast64_t unsealed;     /* bytes in no row yet */
	atomic_uint_fast64_t sealed_since; /* bytes that rows got since `dirty` was summed */
	uint64_t dirty;                    /* sum of the rows */

	enum spw_level level;
	int64_t expected; /* headroom at the last tick */
	atomic_uint_fast64_t taken;
	uint64_t now_ms, reported_ms;
	uint64_t full_since_ms; /* since when the level is FULL without progress */
	uint64_t refused_since_ms, refused_ms; /* first and last refusal by the disk; 0: none */
	unsigned int waiters;
	struct flow flows[FLOWS];
} space = { .lock = PTHREAD_MUTEX_INITIALIZER, .granted = PTHREAD_COND_INITIALIZER };

/* ---- how much there is ---- */

static int64_t less(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t slow_part(uint64_t whole)
{
	return (int64_t)(whole / 1000 * (1000 - space.limits.slow_per_mille));
}

/* Measures headroom and its slow part, for the disk or the dirty limit, whichever is nearer. */
static int64_t measure(int64_t *slow_below)
{
	uint64_t dirty = space.dirty + atomic_load(&space.sealed_since) +
			 atomic_load(&space.unsealed);
	uint64_t total, free;
	int64_t disk, limit;

	if (space.ops.disk(&total, &free) != 0) {
		*slow_below = atomic_load(&space.slow_below);
		return atomic_load(&space.headroom);
	}
	disk = (int64_t)free - (int64_t)space.limits.reserve_bytes;
	*slow_below = slow_part(total);
	if (space.limits.dirty_limit_bytes == UINT64_MAX)
		return disk;
	limit = (int64_t)space.limits.dirty_limit_bytes - (int64_t)dirty;
	if (limit < disk)
		*slow_below = slow_part(space.limits.dirty_limit_bytes);
	return less(limit, disk);
}

static void report_locked(void)
{
	struct spw_space now = {
		.unsealed_bytes = atomic_load(&space.unsealed),
		.headroom_bytes = spw_space_available(),
		.level = space.level,
	};
	uint64_t counted = atomic_load(&space.sealed_since);
	uint64_t dirty = space.dirty + counted; /* stays if the namespace does not answer */

	for (unsigned int i = 0; i < FLOWS; i++)
		if (space.flows[i].weight > 0 &&
		    space.now_ms - space.flows[i].asked_ms <= FLOW_IDLE_MS)
			now.flows++;
	/* The call of the namespace is without the lock: writers must not wait for it. */
	pthread_mutex_unlock(&space.lock);
	space.ops.report(&now, &dirty);
	pthread_mutex_lock(&space.lock);
	space.dirty = dirty;
	atomic_fetch_sub(&space.sealed_since, counted);
}

static void grant_locked(int64_t bytes)
{
	uint64_t weights = 0;

	for (unsigned int i = 0; i < FLOWS; i++) {
		struct flow *flow = &space.flows[i];

		if (space.now_ms - flow->asked_ms > FLOW_IDLE_MS)
			flow->weight = 0;
		weights += flow->weight;
	}
	for (unsigned int i = 0; i < FLOWS && weights > 0; i++) {
		struct flow *flow = &space.flows[i];
		int64_t share = bytes / (int64_t)weights * flow->weight;

		/* Unused tokens are not kept beyond two shares: they are still headroom. */
		if (flow->weight > 0)
			flow->tokens = less(flow->tokens + share, 2 * share + 1);
	}
}

/* Returns the bytes to grant at a tick: a share of the headroom. The grant grows as the headroom
 * comes near slow_below. So the headroom settles below it, however much the drain makes free: above
 * it there are no shares. */
static int64_t grant(int64_t headroom, int64_t slow_below)
{
	double share = (double)headroom * TICK_MS / SHRINK_MS;
	double left = (double)(slow_below - headroom) / (double)slow_below;

	return share < (double)headroom * left ? (int64_t)(share / left) : headroom;
}

/* Returns whether writers get ENOSPC and no longer wait. */
static bool refuses_locked(void)
{
	return space.level == SPW_FULL &&
	       space.now_ms - space.full_since_ms >= space.limits.full_wait_ms;
}

static void look_locked(void)
{
	/* This is read first: bytes that are taken meanwhile may count twice, but always count. */
	int64_t before = atomic_load(&space.headroom);
	int64_t slow_below, freed, headroom = measure(&slow_below) - atomic_load(&space.pending);
	enum spw_level level = headroom > slow_below ? SPW_ROOM
			       : headroom > slow_below / FULL_PART ? SPW_SLOW : SPW_FULL;

	freed = headroom - (space.expected - (int64_t)atomic_exchange(&space.taken, 0));
	if (level == SPW_FULL && (space.level != SPW_FULL || freed >= PROGRESS_BYTES))
		space.full_since_ms = space.now_ms;
	space.level = level;
	space.expected = headroom;
	atomic_store(&space.slow_below, slow_below);
	atomic_fetch_add(&space.headroom, headroom - before);
	if (level != SPW_ROOM && headroom > 0 && !refuses_locked())
		grant_locked(grant(headroom, slow_below));
}

void spw_space_tick(uint64_t now_ms)
{
	pthread_mutex_lock(&space.lock);
	space.now_ms = now_ms;
	if (now_ms - space.reported_ms >= REPORT_MS || space.reported_ms == 0) {
		space.reported_ms = now_ms;
		report_locked();
	}
	if (now_ms - space.refused_ms > space.limits.full_wait_ms + REFUSAL_KEPT_MS)
		space.refused_since_ms = 0;
	look_locked();
	pthread_cond_broadcast(&space.granted);
	pthread_mutex_unlock(&space.lock);
}

/* ---- which flow gets it ---- */

/* Returns the flow, or NULL if there is none. *spare is a place for a new flow then. */
static struct flow *find_locked(uint64_t client, uint64_t top, struct flow **spare)
{
	*spare = &space.flows[client % FLOWS]; /* clients share a place if all are in use */
	for (unsigned int i = 0; i < FLOWS; i++) {
		struct flow *flow = &space.flows[i];

		if (flow->weight > 0 && flow->client == client && flow->top == top)
			return flow;
		if (flow->weight == 0)
			*spare = flow;
	}
	return NULL;
}

static struct flow *flow_locked(uint64_t ino, uint64_t *top, const char *client)
{
	uint64_t key = spw_hash(0, client, (uint32_t)strlen(client)), found_top = 0;
	struct flow *flow = NULL, *spare;
	uint32_t weight = 1;

	if (*top != 0)
		flow = find_locked(key, *top, &spare);
	if (flow == NULL) {
		pthread_mutex_unlock(&space.lock);
		space.ops.flow(ino, client, &found_top, &weight);
		pthread_mutex_lock(&space.lock);
		*top = found_top;
		flow = find_locked(key, *top, &spare);
	}
	if (flow == NULL) {
		flow = spare;
		if (flow->weight == 0)
			*flow = (struct flow){ .client = key, .top = *top,
					       .weight = weight > 0 ? weight : 1 };
	}
	flow->asked_ms = space.now_ms;
	return flow;
}

static void wait_locked(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += SPW_WAIT_MS * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000L;
	until.tv_nsec %= 1000000000L;
	space.waiters++;
	pthread_cond_timedwait(&space.granted, &space.lock, &until);
	space.waiters--;
}

static bool pay_locked(struct flow *flow, int64_t bytes)
{
	bool slowed = space.level != SPW_ROOM;

	if (atomic_load(&space.headroom) <= bytes || (slowed && flow->tokens <= 0))
		return false;
	if (slowed)
		flow->tokens -= bytes;
	atomic_fetch_add(&space.pending, bytes);
	atomic_fetch_sub(&space.headroom, bytes);
	atomic_fetch_add(&space.taken, (uint64_t)bytes);
	return true;
}

/* Returns whether waiting is useless: the grant of one tick is never kept for the next. */
static bool never_fits(int64_t bytes)
{
	return bytes > WRITE_MAX_BYTES && bytes >= atomic_load(&space.headroom);
}

static int take_slowly(uint64_t ino, uint64_t *top, const char *client, int64_t bytes)
{
	bool waited = false;
	int rc = EAGAIN;

	pthread_mutex_lock(&space.lock);
	for (;;) {
		struct flow *flow = flow_locked(ino, top, client);

		if (refuses_locked() || never_fits(bytes))
			rc = ENOSPC;
		else if (pay_locked(flow, bytes))
			rc = 0;
		else if (!waited && space.waiters < WAITERS_MAX) {
			wait_locked();
			waited = true;
			continue;
		}
		break;
	}
	pthread_mutex_unlock(&space.lock);
	return rc;
}

int spw_space_take(uint64_t ino, uint64_t *top, const char *client, uint64_t bytes)
{
	int64_t wanted = (int64_t)bytes;
	int64_t slow_below = atomic_load(&space.slow_below);
	int_fast64_t headroom = atomic_load(&space.headroom);

	if (bytes > INT64_MAX)
		return ENOSPC;
	atomic_fetch_add(&space.pending, wanted);
	/* Bytes are never taken and given back: a look in between would find too much room. */
	while (headroom - wanted > slow_below) {
		if (!atomic_compare_exchange_weak(&space.headroom, &headroom, headroom - wanted))
			continue;
		atomic_fetch_add(&space.taken, bytes);
		return 0;
	}
	atomic_fetch_sub(&space.pending, wanted);
	return take_slowly(ino, top, client, wanted);
}

void spw_space_done(uint64_t bytes)
{
	atomic_fetch_sub(&space.pending, (int64_t)bytes);
}

int spw_space_refused(void)
{
	int rc;

	pthread_mutex_lock(&space.lock);
	space.refused_ms = space.now_ms;
	if (space.refused_since_ms == 0)
		space.refused_since_ms = space.now_ms;
	rc = space.now_ms - space.refused_since_ms < space.limits.full_wait_ms ? EAGAIN : ENOSPC;
	pthread_mutex_unlock(&space.lock);
	return rc;
}

/* ---- what became of it ---- */

void spw_space_grown(int64_t bytes)
{
	atomic_fetch_add(&space.unsealed, (uint64_t)bytes);
}

void spw_space_sealed(uint64_t bytes, bool has_row)
{
	atomic_fetch_sub(&space.unsealed, bytes);
	if (has_row)
		atomic_fetch_add(&space.sealed_since, bytes);
}

uint64_t spw_space_available(void)
{
	int64_t headroom = atomic_load(&space.headroom);

	return headroom > 0 ? (uint64_t)headroom : 0;
}

/* ---- the thread ---- */

void spw_space_start(const struct spw_limits *limits, const struct spw_space_ops *ops)
{
	space.limits = *limits;
	space.ops = *ops;
	/* The headroom that the first look finds must not count as progress. */
	space.expected = INT64_MAX / 2;
	spw_space_tick(spw_clock_ms());
}

static void *ticker(void *argument)
{
	const struct timespec tick = { .tv_nsec = TICK_MS * 1000000L };

	(void)argument;
	for (;;) {
		nanosleep(&tick, NULL);
		spw_space_tick(spw_clock_ms());
	}
	return NULL;
}

int spw_space_thread(void)
{
	return spw_thread_start(ticker, NULL);
}
