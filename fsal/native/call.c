/* Calls of the namespace, gathered: one thread at a time is in Python for all that wait.
 *
 * Every thread that waits for the interpreter's lock costs those that have it: the lock changes hands
 * at each SQL statement. So whoever comes while another thread is inside queues here, without that
 * lock, and is answered by the next one that goes in, with all others that wait. Changes and reads
 * queue apart: a read must not wait for an fsync.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "python.h"

#define TOGETHER 64u

enum state { WAITING, ANSWERED, NEXT };

/* A call that waits; on the stack of its thread. */
struct waiting {
	struct waiting *next;
	struct spw_item item;
	enum state state;
	pthread_cond_t changed;
};

static struct lane {
	pthread_mutex_t lock;
	bool busy; /* a thread is in Python, or chosen to be */
	struct waiting *first, **last;
} changes = { .lock = PTHREAD_MUTEX_INITIALIZER, .last = &changes.first },
  reads = { .lock = PTHREAD_MUTEX_INITIALIZER, .last = &reads.first };

static struct lane *lane_of(enum spw_op op)
{
	switch (op) {
	case SPW_CREATE:
	case SPW_MKDIR:
	case SPW_SYMLINK_OP:
	case SPW_MKNOD:
	case SPW_LINK:
	case SPW_RENAME:
	case SPW_REMOVE:
	case SPW_SETATTR:
	case SPW_OPEN_WRITE:
	case SPW_SEAL:
	case SPW_SETXATTR:
	case SPW_REMOVEXATTR:
		return &changes;
	case SPW_RECLAIM: /* may wait for the disk, and nobody waits for it */
	case SPW_SPACE:
	case SPW_FLOW:
		return NULL;
	default:
		return &reads;
	}
}

static void append_locked(struct lane *lane, struct waiting *call)
{
	*lane->last = call;
	lane->last = &call->next;
}

/* Takes what waits from the queue; the thread's own call is among it, it is the first. */
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

static void answer(struct lane *lane, const struct waiting *own)
{
	struct waiting *calls[TOGETHER];
	struct spw_item items[TOGETHER];
	unsigned int count = take_locked(lane, calls);

	pthread_mutex_unlock(&lane->lock);
	for (unsigned int i = 0; i < count; i++)
		items[i] = calls[i]->item;
	spw_python_run(items, count);
	pthread_mutex_lock(&lane->lock);
	for (unsigned int i = 0; i < count; i++) {
		if (calls[i] == own)
			continue;
		calls[i]->state = ANSWERED;
		pthread_cond_signal(&calls[i]->changed);
	}
	/* One of those that came meanwhile goes in next. */
	lane->busy = lane->first != NULL;
	if (lane->busy) {
		lane->first->state = NEXT;
		pthread_cond_signal(&lane->first->changed);
	}
}

int spw_call(enum spw_op op, const struct spw_request *request, struct spw_reply *reply)
{
	struct waiting call = {
		.item = { .op = op, .request = request, .reply = reply },
		.changed = PTHREAD_COND_INITIALIZER,
	};
	struct lane *lane = lane_of(op);

	if (lane == NULL) {
		spw_python_run(&call.item, 1);
		return reply->status;
	}
	pthread_mutex_lock(&lane->lock);
	append_locked(lane, &call);
	if (lane->busy) {
		while (call.state == WAITING)
			pthread_cond_wait(&call.changed, &lane->lock);
	} else {
		lane->busy = true;
		call.state = NEXT;
	}
	if (call.state == NEXT)
		answer(lane, &call);
	pthread_mutex_unlock(&lane->lock);
	pthread_cond_destroy(&call.changed);
	return reply->status;
}
