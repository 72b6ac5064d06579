/* Queue of calls of the namespace: one thread at a time is in Python for all calls that wait.
 *
 * Every thread that waits for the interpreter's lock slows the thread that has it: the lock changes
 * hands at each SQL statement. So a call that finds another thread in Python queues here, without
 * that lock. A thread that finds no other in Python enters itself, for one round: that is the
 * shortest way while there is little to do. It leaves later calls to a thread of the queue's own,
 * which answers all calls that wait, round after round, until none waits. To hand Python from
 * caller to caller for each round would cost more than the round. Changes and reads queue apart
 * (`struct lane`): a read must not wait for an fsync.
 */
#include "bridge.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util.h"

#define TOGETHER 64u
/* Calls that wait for a lane, beside those that are in Python: nfs.threads
 * (gateway/config/settings.py) leaves threads for all that needs no name, while both lanes stand still. */
#ifndef SPW_WAITING_MAX
#define SPW_WAITING_MAX 128u
#endif

enum { WAITING, ANSWERED };

/* A call that waits, on the stack of its thread. The thread sleeps on the state of the call and not
 * on a condition variable: after a condition it would need the lane's lock, for which others
 * compete. */
struct waiting {
	struct waiting *next;
	struct spw_item item;
	_Atomic uint32_t state;
};

static struct lane {
	pthread_mutex_t lock;
	pthread_cond_t left;
	bool busy; /* a thread is in Python, or chosen to be */
	bool mine; /* that thread is the lane's own */
	unsigned int waiting;
	struct waiting *first, **last;
} changes = { .lock = PTHREAD_MUTEX_INITIALIZER,
	      .left = PTHREAD_COND_INITIALIZER,
	      .last = &changes.first },
  reads = { .lock = PTHREAD_MUTEX_INITIALIZER,
	    .left = PTHREAD_COND_INITIALIZER,
	    .last = &reads.first };

static struct lane *lane_of(enum spw_op op)
{
	if (op < SPW_CREATE)
		return &reads;
	return op <= SPW_NOTE_READS ? &changes : NULL;
}

static void append_locked(struct lane *lane, struct waiting *call)
{
	*lane->last = call;
	lane->last = &call->next;
	lane->waiting++;
}

/* Takes up to TOGETHER calls from the queue. */
static unsigned int take_locked(struct lane *lane, struct waiting **calls)
{
	unsigned int count = 0;

	while (count < TOGETHER && lane->first != NULL) {
		calls[count] = lane->first;
		lane->first = calls[count++]->next;
	}
	if (lane->first == NULL)
		lane->last = &lane->first;
	lane->waiting -= count;
	return count;
}

static void sleep_on(struct waiting *call)
{
	while (atomic_load_explicit(&call->state, memory_order_acquire) == WAITING)
		syscall(SYS_futex, &call->state, FUTEX_WAIT_PRIVATE, WAITING, NULL, NULL, 0);
}

/* Wakes the thread of a call. After the store the thread may return and the call no longer exist,
 * so only its address is used. Another call at that address checks its own state and sleeps
 * again. */
static void wake(struct waiting *call)
{
	_Atomic uint32_t *word = &call->state;

	atomic_store_explicit(word, ANSWERED, memory_order_release);
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Enters Python with all calls that wait. Only the thread that is `busy` does this. own: the call
 * of this thread, or NULL. Returns whether other calls came meanwhile. If so, the lane's own thread
 * is the busy one now. */
static bool answer(struct lane *lane, const struct waiting *own)
{
	struct waiting *calls[TOGETHER];
	struct spw_item items[TOGETHER];
	unsigned int count;
	bool more;

	pthread_mutex_lock(&lane->lock);
	count = take_locked(lane, calls);
	pthread_mutex_unlock(&lane->lock);
	for (unsigned int i = 0; i < count; i++)
		items[i] = calls[i]->item;
	spw_python_run(items, count);
	for (unsigned int i = 0; i < count; i++)
		if (calls[i] != own)
			wake(calls[i]);
	pthread_mutex_lock(&lane->lock);
	more = lane->busy = lane->mine = lane->first != NULL;
	pthread_mutex_unlock(&lane->lock);
	return more;
}

static void *serve(void *argument)
{
	struct lane *lane = argument;

	for (;;) {
		pthread_mutex_lock(&lane->lock);
		while (!lane->mine)
			pthread_cond_wait(&lane->left, &lane->lock);
		pthread_mutex_unlock(&lane->lock);
		while (answer(lane, NULL))
			;
	}
	return NULL;
}

int spw_calls_start(void)
{
	int rc = spw_thread_start(serve, &changes);

	return rc != 0 ? rc : spw_thread_start(serve, &reads);
}

/* Returns whether a call is refused while many wait. Threads of our own are few, and do not ask again at
 * once. */
static bool is_clients(enum spw_op op)
{
	switch (op) {
	case SPW_SEAL:
	case SPW_RECLAIM:
	case SPW_DAMAGE:
	case SPW_LOST:
	case SPW_EVICT:
	case SPW_ARRIVED:
	case SPW_NOTE_READS:
		return false;
	default:
		return true;
	}
}

int spw_call(enum spw_op op, const struct spw_request *request, struct spw_reply *reply)
{
	struct waiting call = { .item = { .op = op, .request = request, .reply = reply } };
	struct lane *lane = lane_of(op);
	bool is_alone;

	if (lane == NULL) {
		spw_python_run(&call.item, 1);
		return reply->status;
	}
	pthread_mutex_lock(&lane->lock);
	if (lane->waiting >= SPW_WAITING_MAX && is_clients(op)) {
		pthread_mutex_unlock(&lane->lock);
		reply->named_in = 0;
		return reply->status = EAGAIN;
	}
	append_locked(lane, &call);
	is_alone = !lane->busy;
	lane->busy = true;
	pthread_mutex_unlock(&lane->lock);
	if (!is_alone)
		sleep_on(&call);
	else if (answer(lane, &call))
		pthread_cond_signal(&lane->left);
	return reply->status;
}
