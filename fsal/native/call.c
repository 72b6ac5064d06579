/* Calls of the namespace, gathered: one thread at a time is in Python for all that wait.
 *
 * Every thread that waits for the interpreter's lock costs those that have it: the lock changes hands
 * at each SQL statement. So whoever comes while another thread is inside queues here, without that
 * lock, and is answered by the next one that goes in, with all others that wait. Changes and reads
 * queue apart: a read must not wait for an fsync.
 */
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "python.h"

#define TOGETHER 64u

enum { WAITING, ANSWERED, NEXT };

/* A call that waits; on the stack of its thread. It sleeps on its state and not on a condition: whoever
 * is woken from one must have the lane's lock again, which those that come and go fight for. */
struct waiting {
	struct waiting *next;
	struct spw_item item;
	_Atomic uint32_t state;
};

static struct lane {
	pthread_mutex_t lock;
	bool busy; /* a thread is in Python, or chosen to be */
	struct waiting *first, **last;
} changes = { .lock = PTHREAD_MUTEX_INITIALIZER, .last = &changes.first },
  reads = { .lock = PTHREAD_MUTEX_INITIALIZER, .last = &reads.first };

static struct lane *lane_of(enum spw_op op)
{
	if (op < SPW_CREATE)
		return &reads;
	return op <= SPW_REMOVEXATTR ? &changes : NULL;
}

static void append_locked(struct lane *lane, struct waiting *call)
{
	*lane->last = call;
	lane->last = &call->next;
}

/* Takes what waits from the queue. */
static unsigned int take_locked(struct lane *lane, struct waiting **calls)
{
	unsigned int count = 0;

	while (count < TOGETHER && lane->first != NULL) {
		calls[count] = lane->first;
		lane->first = calls[count++]->next;
	}
	if (lane->first == NULL)
		lane->last = &lane->first;
	return count;
}

/* Returns when the state is another than WAITING. */
static uint32_t sleep_on(_Atomic uint32_t *state)
{
	uint32_t now;

	while ((now = atomic_load_explicit(state, memory_order_acquire)) == WAITING)
		syscall(SYS_futex, state, FUTEX_WAIT_PRIVATE, WAITING, NULL, NULL, 0);
	return now;
}

/* Its thread may return at once and the call be gone: only its address is used after the store, and
 * whoever else sleeps there by then looks at its state and goes on sleeping. */
static void wake(struct waiting *call, uint32_t state)
{
	_Atomic uint32_t *word = &call->state;

	atomic_store_explicit(word, state, memory_order_release);
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Goes into Python with all that wait, the thread's own call the first of them; the thread is the one
 * that is `busy`. */
static void answer(struct lane *lane)
{
	struct waiting *calls[TOGETHER], *next;
	struct spw_item items[TOGETHER];
	unsigned int count;

	pthread_mutex_lock(&lane->lock);
	count = take_locked(lane, calls);
	pthread_mutex_unlock(&lane->lock);
	for (unsigned int i = 0; i < count; i++)
		items[i] = calls[i]->item;
	spw_python_run(items, count);
	/* One of those that came meanwhile goes in next. */
	pthread_mutex_lock(&lane->lock);
	next = lane->first;
	lane->busy = next != NULL;
	pthread_mutex_unlock(&lane->lock);
	if (next != NULL)
		wake(next, NEXT);
	for (unsigned int i = 1; i < count; i++)
		wake(calls[i], ANSWERED);
}

int spw_call(enum spw_op op, const struct spw_request *request, struct spw_reply *reply)
{
	struct waiting call = { .item = { .op = op, .request = request, .reply = reply } };
	struct lane *lane = lane_of(op);
	bool is_next;

	if (lane == NULL) {
		spw_python_run(&call.item, 1);
		return reply->status;
	}
	pthread_mutex_lock(&lane->lock);
	append_locked(lane, &call);
	is_next = !lane->busy;
	lane->busy = true;
	pthread_mutex_unlock(&lane->lock);
	if (is_next || sleep_on(&call.state) == NEXT)
		answer(lane);
	return reply->status;
}
