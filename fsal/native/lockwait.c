/* Queue of LOCKs that would be denied, and wait instead. It uses neither Ganesha nor Python. */
#include "lockwait.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

#define CHAINS 1024u
/* Of a chain; those beyond are not waited for. A client that locks a file byte by byte costs no more
 * memory, and no call looks at more. */
#define HELD_MAX 256u
/* How long a lock that became free is left to the one that waited for it, whose thread must run
 * first. If its LOCK fails, others that wait lose twice as much at most. */
#ifndef SPW_LOCK_TURN_MS
#define SPW_LOCK_TURN_MS 100u
#endif

struct held {
	struct held *next;
	struct spw_lock lock;
};

static struct chain {
	struct held *first;
	unsigned int count;
} chains[CHAINS];

/* A place for a thread that waits, and afterwards for its turn. */
static struct waiter {
	struct spw_lock wanted;
	pthread_cond_t woken;
	uint64_t number; /* the order in which they came */
	uint64_t turn_ms; /* its turn ends then; 0: it had none yet */
	bool is_inside; /* its thread is here */
} waiters[SPW_LOCK_WAITERS_MAX];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t last_number;

void spw_lockwait_start(void)
{
	for (unsigned int i = 0; i < SPW_LOCK_WAITERS_MAX; i++)
		spw_condition_start(&waiters[i].woken);
}

uint64_t spw_lock_owner(uint64_t client_id, const char *name, uint32_t length)
{
	/* Clients have numbers that follow each other: as a seed, one of them and the next would make
	 * the same of names that do. */
	uint64_t client = spw_hash(0, (const char *)&client_id, sizeof(client_id));

	return spw_hash(client, name, length);
}

static bool excludes(const struct spw_lock *one, const struct spw_lock *other)
{
	return one->ino == other->ino && one->first <= other->last && other->first <= one->last &&
	       (one->is_exclusive || other->is_exclusive);
}

static bool is_owner(const struct spw_lock *holder, const struct spw_lock *asker)
{
	return asker->is_by_state
		       ? memcmp(holder->stateid, asker->stateid, sizeof(asker->stateid)) == 0
		       : holder->owner == asker->owner;
}

/* ---- what is locked ---- */

static void add_locked(const struct spw_lock *added)
{
	struct chain *chain = &chains[added->ino % CHAINS];
	struct held *held = chain->count < HELD_MAX ? malloc(sizeof(*held)) : NULL;

	if (held == NULL)
		return;
	held->lock = *added;
	held->next = chain->first;
	chain->first = held;
	chain->count++;
}

static void remove_locked(struct chain *chain, struct held **at)
{
	struct held *held = *at;

	*at = held->next;
	chain->count--;
	free(held);
}

/* Takes a range from what its owner has locked. */
static void subtract_locked(const struct spw_lock *range)
{
	struct chain *chain = &chains[range->ino % CHAINS];
	struct held **at = &chain->first, *held;

	while ((held = *at) != NULL) {
		struct spw_lock right = held->lock;
		bool has_right = range->last < right.last;

		if (right.ino != range->ino || right.owner != range->owner ||
		    right.first > range->last || range->first > right.last) {
			at = &held->next;
			continue;
		}
		if (held->lock.first < range->first) {
			held->lock.last = range->first - 1;
			at = &held->next;
		} else {
			remove_locked(chain, at);
		}
		if (has_right) {
			right.first = range->last + 1;
			add_locked(&right);
		}
	}
}

/* ---- who waits ---- */

static bool has_turn(const struct waiter *waiter, uint64_t now_ms)
{
	return waiter->turn_ms > now_ms;
}

/* Returns whether no other owner has what a LOCK asks for, or has the turn to take it. */
static bool may_go_locked(const struct spw_lock *wanted, uint64_t now_ms)
{
	const struct held *held = chains[wanted->ino % CHAINS].first;

	for (; held != NULL; held = held->next)
		if (excludes(&held->lock, wanted) && !is_owner(&held->lock, wanted))
			return false;
	for (unsigned int i = 0; i < SPW_LOCK_WAITERS_MAX; i++)
		if (has_turn(&waiters[i], now_ms) && excludes(&waiters[i].wanted, wanted))
			return false;
	return true;
}

/* Returns the one that came first of those that need wait no longer, or NULL. */
static struct waiter *next_locked(uint64_t ino, uint64_t now_ms)
{
	struct waiter *next = NULL;

	for (unsigned int i = 0; i < SPW_LOCK_WAITERS_MAX; i++) {
		struct waiter *waiter = &waiters[i];

		if (waiter->is_inside && waiter->turn_ms == 0 && waiter->wanted.ino == ino &&
		    (next == NULL || waiter->number < next->number) &&
		    may_go_locked(&waiter->wanted, now_ms))
			next = waiter;
	}
	return next;
}

static void give_turns_locked(uint64_t ino)
{
	uint64_t now_ms = spw_clock_ms();
	struct waiter *next;

	while ((next = next_locked(ino, now_ms)) != NULL) {
		next->turn_ms = now_ms + SPW_LOCK_TURN_MS;
		pthread_cond_signal(&next->woken);
	}
}

/* Ends the turn of an owner, which has its lock now. */
static void end_turns_locked(const struct spw_lock *granted)
{
	uint64_t now_ms = spw_clock_ms();

	for (unsigned int i = 0; i < SPW_LOCK_WAITERS_MAX; i++)
		if (has_turn(&waiters[i], now_ms) && waiters[i].wanted.ino == granted->ino &&
		    is_owner(granted, &waiters[i].wanted))
			waiters[i].turn_ms = now_ms;
}

/* Takes a place, or returns NULL. */
static struct waiter *take_place_locked(const struct spw_lock *wanted, uint64_t now_ms)
{
	for (unsigned int i = 0; i < SPW_LOCK_WAITERS_MAX; i++) {
		struct waiter *waiter = &waiters[i];

		if (waiter->is_inside || has_turn(waiter, now_ms))
			continue;
		waiter->wanted = *wanted;
		waiter->number = ++last_number;
		waiter->turn_ms = 0;
		waiter->is_inside = true;
		return waiter;
	}
	return NULL;
}

/* ---- what Ganesha does ---- */

void spw_lock_granted(const struct spw_lock *granted)
{
	pthread_mutex_lock(&lock);
	subtract_locked(granted);
	add_locked(granted);
	end_turns_locked(granted);
	give_turns_locked(granted->ino);
	pthread_mutex_unlock(&lock);
}

void spw_lock_released(const struct spw_lock *range)
{
	pthread_mutex_lock(&lock);
	subtract_locked(range);
	give_turns_locked(range->ino);
	pthread_mutex_unlock(&lock);
}

void spw_lock_forgotten(uint64_t ino, const char *stateid)
{
	struct chain *chain = &chains[ino % CHAINS];
	struct held **at = &chain->first, *held;

	pthread_mutex_lock(&lock);
	while ((held = *at) != NULL) {
		if (held->lock.ino == ino &&
		    memcmp(held->lock.stateid, stateid, sizeof(held->lock.stateid)) == 0)
			remove_locked(chain, at);
		else
			at = &held->next;
	}
	give_turns_locked(ino);
	pthread_mutex_unlock(&lock);
}

void spw_lock_wait(const struct spw_lock *wanted, bool (*is_asked)(void))
{
	uint64_t now_ms = spw_clock_ms(), due_ms = now_ms + SPW_LOCK_WAIT_MS;
	struct waiter *self = NULL;

	pthread_mutex_lock(&lock);
	if (!may_go_locked(wanted, now_ms))
		self = take_place_locked(wanted, now_ms);
	while (self != NULL && self->turn_ms == 0 && now_ms < due_ms && is_asked()) {
		/* Nothing wakes it when another's turn ends, or its client is gone. */
		uint64_t look_ms = now_ms + SPW_LOCK_TURN_MS;

		(void)spw_wait_until(&self->woken, &lock, look_ms < due_ms ? look_ms : due_ms);
		give_turns_locked(wanted->ino);
		now_ms = spw_clock_ms();
	}
	if (self != NULL)
		self->is_inside = false;
	pthread_mutex_unlock(&lock);
}
