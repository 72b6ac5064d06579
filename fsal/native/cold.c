/* Granules of absent inodes, the queue of wanted ranges, and the parked READs. */
#include "cold.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "util.h"

#ifndef SPW_COLD_RETRY_MS
#define SPW_COLD_RETRY_MS 10000u /* for so long READs fail after the hydrator failed */
#endif
#define PARKED_MAX 256u       /* each keeps its reply buffer, of up to 1 MiB */
#define PARKED_CLIENT_MAX 24u /* of the 64 requests that a client may have under way */
#define RANGE_MAX 16u         /* granules of a range; the files take turns */
#define CLOSE_MS 2000u

#define WAITING (-1)          /* as the result of a parked READ */
/* HANDED: the hydrator of this session works on it. */
enum { MISSING, QUEUED, HANDED, PRESENT };

struct spw_cold {
	TAILQ_ENTRY(spw_cold) all;
	TAILQ_ENTRY(spw_cold) turn; /* in `queue`, while granules are queued */
	struct spw_attr attr;
	uint64_t failed_until_ms;
	uint64_t first;  /* no granule before it is queued */
	uint64_t queued; /* number of queued granules */
	uint64_t count;
	uint64_t confirmed; /* session that was asked about the file when it was here as a whole */
	uint8_t state[]; /* of each granule */
};

TAILQ_HEAD(records, spw_cold);
TAILQ_HEAD(parked, spw_parked);

static struct {
	pthread_mutex_t lock;
	pthread_cond_t work;   /* for the thread that answers */
	pthread_cond_t wanted; /* for spw_cold_next */
	pthread_cond_t idle;   /* nothing is parked any more */
	struct records all, queue;
	struct parked parked; /* in the order of their times */
	unsigned int count;   /* READs in the list, and the one that is being answered */
	uint32_t park_ms;
	uint64_t session;
	bool asked; /* a call of spw_cold_next waits */
	bool closed;
} cold = { .lock = PTHREAD_MUTEX_INITIALIZER,
	   .all = TAILQ_HEAD_INITIALIZER(cold.all),
	   .queue = TAILQ_HEAD_INITIALIZER(cold.queue),
	   .parked = TAILQ_HEAD_INITIALIZER(cold.parked) };

/* ---- granules ---- */

static bool is_present_locked(const struct spw_cold *record, uint64_t offset, uint64_t length)
{
	uint64_t i = offset / SPW_GRANULE_BYTES, size = record->attr.size;

	if (!spw_is_in_file(size, offset, length))
		return true;
	while (i <= spw_granule_last(size, offset, length) && record->state[i] == PRESENT)
		i++;
	return i > spw_granule_last(size, offset, length);
}

static void set_locked(struct spw_cold *record, uint64_t granule, uint8_t state)
{
	bool was_queued = record->state[granule] == QUEUED;

	record->state[granule] = state;
	if (state == QUEUED && granule < record->first)
		record->first = granule;
	if (was_queued && state != QUEUED && --record->queued == 0)
		TAILQ_REMOVE(&cold.queue, record, turn);
	if (!was_queued && state == QUEUED && record->queued++ == 0)
		TAILQ_INSERT_TAIL(&cold.queue, record, turn);
}

static void turn_all_locked(struct spw_cold *record, uint8_t from, uint8_t to)
{
	for (uint64_t i = 0; i < record->count; i++)
		if (record->state[i] == from)
			set_locked(record, i, to);
}

/* Has the hydrator look at a file again that is here as a whole, once in a session: its ARRIVED may
 * have been lost, and calls that need the whole file would wait for ever. */
static void confirm_locked(struct spw_cold *record)
{
	if (record->count == 0 || record->confirmed == cold.session ||
	    !is_present_locked(record, 0, UINT64_MAX))
		return;
	record->confirmed = cold.session;
	set_locked(record, record->count - 1, QUEUED);
	pthread_cond_signal(&cold.wanted);
}

int spw_cold_begin(struct spw_inode *inode, const struct spw_attr *attr)
{
	uint64_t count = spw_granules(attr->size);
	struct spw_cold *record = calloc(1, sizeof(*record) + count);

	if (record == NULL)
		return EAGAIN; /* there is no memory now */
	record->attr = *attr;
	record->count = record->first = count;
	pthread_mutex_lock(&cold.lock);
	if (inode->cold == NULL) {
		TAILQ_INSERT_TAIL(&cold.all, record, all);
		inode->cold = record;
		record = NULL;
	}
	pthread_mutex_unlock(&cold.lock);
	free(record);
	return 0;
}

int spw_cold_want(struct spw_inode *inode, uint64_t offset, uint64_t length, uint64_t *size)
{
	struct spw_cold *record;
	uint64_t last;
	int rc = 0;

	pthread_mutex_lock(&cold.lock);
	record = inode->cold;
	if (record == NULL) {
		rc = ENOENT;
	} else if (!is_present_locked(record, offset, length)) {
		rc = spw_clock_ms() < record->failed_until_ms ? EIO : EINPROGRESS;
		last = spw_granule_last(record->attr.size, offset, length);
		for (uint64_t i = offset / SPW_GRANULE_BYTES; rc == EINPROGRESS && i <= last; i++)
			if (record->state[i] == MISSING)
				set_locked(record, i, QUEUED);
		pthread_cond_signal(&cold.wanted);
	}
	if (record != NULL)
		*size = record->attr.size;
	pthread_mutex_unlock(&cold.lock);
	return rc;
}

void spw_cold_confirm(struct spw_inode *inode)
{
	pthread_mutex_lock(&cold.lock);
	if (inode->cold != NULL)
		confirm_locked(inode->cold);
	pthread_mutex_unlock(&cold.lock);
}

/* ---- parked READs ---- */

static unsigned int count_locked(uint64_t client)
{
	const struct spw_parked *one;
	unsigned int count = 0;

	TAILQ_FOREACH(one, &cold.parked, entry)
		count += one->client == client;
	return count;
}

int spw_cold_park(struct spw_parked *parked)
{
	const struct spw_cold *record;
	uint64_t now = spw_clock_ms();
	int rc = 0;

	pthread_mutex_lock(&cold.lock);
	record = parked->inode->cold;
	if (record == NULL || now < record->failed_until_ms ||
	    is_present_locked(record, parked->offset, parked->length)) {
		rc = EALREADY;
	} else if (cold.closed || cold.park_ms == 0 || cold.count >= PARKED_MAX ||
		   count_locked(parked->client) >= PARKED_CLIENT_MAX) {
		rc = EAGAIN;
	} else {
		parked->due_ms = now + cold.park_ms;
		parked->rc = WAITING;
		TAILQ_INSERT_TAIL(&cold.parked, parked, entry);
		cold.count++;
		pthread_cond_signal(&cold.work);
	}
	pthread_mutex_unlock(&cold.lock);
	return rc;
}

/* Has READs answered that wait. inode NULL: those of all inodes. only_present: only those whose
 * bytes are present. */
static void answer_locked(const struct spw_inode *inode, bool only_present, int rc)
{
	struct spw_parked *one;

	TAILQ_FOREACH(one, &cold.parked, entry)
		if (one->rc == WAITING && (inode == NULL || one->inode == inode) &&
		    (!only_present || is_present_locked(one->inode->cold, one->offset, one->length)))
			one->rc = rc;
	pthread_cond_signal(&cold.work);
}

/* Waits for a READ that is to be answered, and takes it. */
static struct spw_parked *take_locked(void)
{
	for (;;) {
		struct spw_parked *one, *first = TAILQ_FIRST(&cold.parked);
		uint64_t now = spw_clock_ms();

		if (first != NULL && first->rc == WAITING && now >= first->due_ms)
			first->rc = EAGAIN;
		TAILQ_FOREACH(one, &cold.parked, entry)
			if (one->rc != WAITING)
				break;
		if (one != NULL) {
			TAILQ_REMOVE(&cold.parked, one, entry);
			return one;
		}
		if (first == NULL)
			pthread_cond_wait(&cold.work, &cold.lock);
		else
			(void)spw_wait_until(&cold.work, &cold.lock, first->due_ms);
	}
}

static void *answer(void *argument)
{
	(void)argument;
	pthread_mutex_lock(&cold.lock);
	for (;;) {
		struct spw_parked *parked = take_locked();

		pthread_mutex_unlock(&cold.lock);
		parked->resume(parked, parked->rc);
		pthread_mutex_lock(&cold.lock);
		if (--cold.count == 0)
			pthread_cond_broadcast(&cold.idle);
	}
	return NULL;
}

/* ---- the hydrator ---- */

static void hand_out_locked(struct spw_wanted *wanted)
{
	struct spw_cold *record = TAILQ_FIRST(&cold.queue);
	const uint8_t *found = memchr(record->state + record->first, QUEUED,
				      record->count - record->first);
	uint64_t first = (uint64_t)(found - record->state), end = first;

	while (end < record->count && end - first < RANGE_MAX && record->state[end] == QUEUED)
		end++;
	TAILQ_REMOVE(&cold.queue, record, turn);
	TAILQ_INSERT_TAIL(&cold.queue, record, turn);
	record->first = end;
	for (uint64_t i = first; i < end; i++)
		set_locked(record, i, HANDED);
	wanted->attr = record->attr;
	wanted->offset = first * SPW_GRANULE_BYTES;
	wanted->length = (end - first) * SPW_GRANULE_BYTES;
	if (end == record->count)
		wanted->length = record->attr.size - wanted->offset;
}

int spw_cold_next(uint64_t session, uint32_t wait_ms, struct spw_wanted *wanted)
{
	uint64_t due_ms = spw_clock_ms() + wait_ms;
	struct spw_cold *record;
	int rc = 0;

	memset(wanted, 0, sizeof(*wanted));
	pthread_mutex_lock(&cold.lock);
	if (cold.asked) {
		rc = EBUSY;
	} else {
		cold.asked = true;
		if (session != cold.session) {
			cold.session = session;
			TAILQ_FOREACH(record, &cold.all, all) {
				turn_all_locked(record, HANDED, QUEUED);
				confirm_locked(record);
			}
		}
		while (TAILQ_EMPTY(&cold.queue) && !cold.closed &&
		       spw_wait_until(&cold.wanted, &cold.lock, due_ms))
			;
		if (!TAILQ_EMPTY(&cold.queue) && !cold.closed)
			hand_out_locked(wanted);
		cold.asked = false;
	}
	pthread_mutex_unlock(&cold.lock);
	return rc;
}

/* Finds the record of an inode. Returns 0 or an errno. */
static int find_locked(const struct spw_inode *inode, uint64_t epoch, struct spw_cold **record)
{
	*record = inode->cold;
	if (*record == NULL)
		return ENOENT;
	return (*record)->attr.epoch == epoch ? 0 : ESTALE;
}

int spw_cold_present(struct spw_inode *inode, uint64_t epoch, uint64_t offset, uint64_t length)
{
	struct spw_cold *record;
	int rc;

	pthread_mutex_lock(&cold.lock);
	rc = find_locked(inode, epoch, &record);
	if (rc == 0 && !spw_is_granules(record->attr.size, offset, length))
		rc = EINVAL;
	if (rc == 0) {
		for (uint64_t i = offset / SPW_GRANULE_BYTES, n = spw_granules(length); n > 0; n--)
			set_locked(record, i++, PRESENT);
		answer_locked(inode, true, 0);
	}
	pthread_mutex_unlock(&cold.lock);
	return rc;
}

int spw_cold_failed(struct spw_inode *inode, uint64_t epoch, bool is_all)
{
	struct spw_cold *record;
	int rc;

	pthread_mutex_lock(&cold.lock);
	rc = find_locked(inode, epoch, &record);
	if (rc == 0) {
		record->failed_until_ms = spw_clock_ms() + SPW_COLD_RETRY_MS;
		turn_all_locked(record, HANDED, MISSING);
		turn_all_locked(record, QUEUED, MISSING);
		if (is_all)
			turn_all_locked(record, PRESENT, MISSING);
		answer_locked(inode, false, EIO);
	}
	pthread_mutex_unlock(&cold.lock);
	return rc;
}

/* ---- begin and end ---- */

void spw_cold_forget(struct spw_inode *inode, int rc)
{
	struct spw_cold *record;

	pthread_mutex_lock(&cold.lock);
	record = inode->cold;
	if (record != NULL) {
		answer_locked(inode, false, rc);
		inode->cold = NULL;
		TAILQ_REMOVE(&cold.all, record, all);
		if (record->queued > 0)
			TAILQ_REMOVE(&cold.queue, record, turn);
		free(record);
	}
	pthread_mutex_unlock(&cold.lock);
}

void spw_cold_open(void)
{
	pthread_mutex_lock(&cold.lock);
	cold.closed = false;
	pthread_mutex_unlock(&cold.lock);
}

void spw_cold_close(void)
{
	uint64_t due_ms = spw_clock_ms() + CLOSE_MS;

	pthread_mutex_lock(&cold.lock);
	cold.closed = true;
	answer_locked(NULL, false, EAGAIN);
	pthread_cond_broadcast(&cold.wanted);
	while (cold.count > 0 && spw_wait_until(&cold.idle, &cold.lock, due_ms))
		;
	pthread_mutex_unlock(&cold.lock);
}

int spw_cold_start(uint32_t park_ms)
{
	cold.park_ms = park_ms;
	spw_condition_start(&cold.work);
	spw_condition_start(&cold.wanted);
	spw_condition_start(&cold.idle);
	return spw_thread_start(answer, NULL);
}
