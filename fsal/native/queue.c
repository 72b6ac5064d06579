/* Queue of work for the sealer: files whose last writer closed, and orphans. */
#include "seal.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "util.h"

#define GATHER_US 2000
/* After the first failed seal of a file, or reclaim; each next pause is twice as long. */
#define PAUSE_MS 1000u
#define PAUSE_MAX_MS 32000u

struct orphan {
	struct orphan *next;
	struct spw_orphan what;
};

struct list {
	struct spw_inode *first, **last;
};

/* The queue has inodes without a writer that the namespace still has open for writing, and
 * orphans. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t dirty; /* for spw_queue_to_sync */
	pthread_cond_t work;  /* for spw_queue_take */
	pthread_cond_t idle;
	struct list unsynced; /* inodes with bytes that may not be on stable storage */
	struct list ready;    /* to be sealed */
	struct spw_inode *later; /* inodes that wait until their `again_ms` */
	uint64_t due_ms;         /* the earliest `again_ms` of them */
	struct orphan *orphans;
	uint64_t orphans_due_ms; /* no orphan is taken before it */
	uint32_t orphans_pause_ms;
	unsigned int in_hand;
} queue = { .lock = PTHREAD_MUTEX_INITIALIZER,
	    .dirty = PTHREAD_COND_INITIALIZER,
	    .idle = PTHREAD_COND_INITIALIZER,
	    .unsynced.last = &queue.unsynced.first,
	    .ready.last = &queue.ready.first };

static void append(struct list *list, struct spw_inode *inode)
{
	inode->next_unsealed = NULL;
	*list->last = inode;
	list->last = &inode->next_unsealed;
}

static struct spw_inode *pop(struct list *list)
{
	struct spw_inode *inode = list->first;

	list->first = inode->next_unsealed;
	if (list->first == NULL)
		list->last = &list->first;
	return inode;
}

/* Queues an inode to be synced, or to be sealed if there is nothing to sync. */
static void append_locked(struct spw_inode *inode)
{
	if (atomic_load(&inode->error) == 0 &&
	    atomic_load(&inode->synced) >= atomic_load(&inode->writes)) {
		append(&queue.ready, inode);
		pthread_cond_signal(&queue.work);
	} else {
		append(&queue.unsynced, inode);
		pthread_cond_signal(&queue.dirty);
	}
}

bool spw_queue_add(struct spw_inode *inode)
{
	bool is_new;

	pthread_mutex_lock(&queue.lock);
	is_new = !inode->unsealed;
	if (is_new) {
		inode->unsealed = true;
		append_locked(inode);
	}
	pthread_mutex_unlock(&queue.lock);
	return is_new;
}

static uint32_t longer_ms(uint32_t pause_ms)
{
	uint32_t longer = pause_ms == 0 ? PAUSE_MS : pause_ms * 2;

	return longer < PAUSE_MAX_MS ? longer : PAUSE_MAX_MS;
}

bool spw_queue_again(struct spw_inode *inode)
{
	bool is_new;

	pthread_mutex_lock(&queue.lock);
	is_new = !inode->unsealed;
	if (is_new) {
		inode->unsealed = true;
		inode->pause_ms = longer_ms(inode->pause_ms);
		inode->again_ms = spw_clock_ms() + inode->pause_ms;
		if (queue.later == NULL || inode->again_ms < queue.due_ms)
			queue.due_ms = inode->again_ms;
		inode->next_unsealed = queue.later;
		queue.later = inode;
	}
	pthread_mutex_unlock(&queue.lock);
	return is_new;
}

void spw_queue_settled(struct spw_inode *inode)
{
	pthread_mutex_lock(&queue.lock);
	inode->pause_ms = 0;
	pthread_mutex_unlock(&queue.lock);
}

/* Queues the inodes whose time has come. */
static void resume_locked(void)
{
	struct spw_inode *inode = queue.later;
	uint64_t now = spw_clock_ms();

	if (inode == NULL || now < queue.due_ms)
		return;
	queue.later = NULL;
	queue.due_ms = UINT64_MAX;
	while (inode != NULL) {
		struct spw_inode *next = inode->next_unsealed;

		if (inode->again_ms <= now) {
			append_locked(inode);
		} else {
			inode->next_unsealed = queue.later;
			queue.later = inode;
			if (inode->again_ms < queue.due_ms)
				queue.due_ms = inode->again_ms;
		}
		inode = next;
	}
}

static void add_orphan(uint64_t ino, uint64_t epoch)
{
	struct orphan *orphan = malloc(sizeof(*orphan));

	if (orphan == NULL)
		abort(); /* as Ganesha's own allocator does */
	orphan->what = (struct spw_orphan){ .ino = ino, .epoch = epoch, .status = EIO };
	pthread_mutex_lock(&queue.lock);
	orphan->next = queue.orphans;
	queue.orphans = orphan;
	pthread_cond_signal(&queue.work);
	pthread_mutex_unlock(&queue.lock);
}

void spw_queue_orphan(uint64_t ino, uint64_t epoch)
{
	add_orphan(ino, epoch);
}

void spw_queue_orphans_done(const struct spw_orphan *orphans, unsigned int count)
{
	bool failed = false;

	for (unsigned int i = 0; i < count; i++) {
		/* ENOENT: it is no orphan. */
		if (orphans[i].status == 0 || orphans[i].status == ENOENT)
			continue;
		failed = true;
		add_orphan(orphans[i].ino, orphans[i].epoch);
	}
	pthread_mutex_lock(&queue.lock);
	queue.orphans_pause_ms = failed ? longer_ms(queue.orphans_pause_ms) : 0;
	queue.orphans_due_ms = failed ? spw_clock_ms() + queue.orphans_pause_ms : 0;
	pthread_mutex_unlock(&queue.lock);
}

static bool has_orphans_locked(void)
{
	return queue.orphans != NULL &&
	       (queue.orphans_due_ms == 0 || spw_clock_ms() >= queue.orphans_due_ms);
}

static unsigned int dequeue_orphans_locked(struct spw_orphan *orphans)
{
	unsigned int count = 0;

	while (count < SPW_QUEUE_BATCH && has_orphans_locked()) {
		struct orphan *orphan = queue.orphans;

		orphans[count++] = orphan->what;
		queue.orphans = orphan->next;
		free(orphan);
	}
	return count;
}

static void wait_locked(void)
{
	uint64_t due_ms = queue.later != NULL ? queue.due_ms : UINT64_MAX;

	if (queue.orphans != NULL && queue.orphans_due_ms < due_ms)
		due_ms = queue.orphans_due_ms;
	if (due_ms == UINT64_MAX)
		pthread_cond_wait(&queue.work, &queue.lock);
	else
		(void)spw_wait_until(&queue.work, &queue.lock, due_ms);
	resume_locked();
}

struct spw_inode *spw_queue_to_sync(void)
{
	struct spw_inode *inode;

	pthread_mutex_lock(&queue.lock);
	while (queue.unsynced.first == NULL)
		pthread_cond_wait(&queue.dirty, &queue.lock);
	inode = pop(&queue.unsynced);
	queue.in_hand++;
	pthread_mutex_unlock(&queue.lock);
	return inode;
}

void spw_queue_synced(struct spw_inode *inode)
{
	pthread_mutex_lock(&queue.lock);
	append(&queue.ready, inode);
	queue.in_hand--;
	pthread_cond_signal(&queue.work);
	pthread_mutex_unlock(&queue.lock);
}

unsigned int spw_queue_take(struct spw_inode **inodes, struct spw_orphan *orphans,
			    unsigned int *orphan_count)
{
	unsigned int count = 0;

	pthread_mutex_lock(&queue.lock);
	resume_locked();
	if (queue.ready.first == NULL && !has_orphans_locked()) {
		while (queue.ready.first == NULL && !has_orphans_locked())
			wait_locked();
		pthread_mutex_unlock(&queue.lock);
		/* The pause gathers more work for the batch. No call waits for the sealer. */
		usleep(GATHER_US);
		pthread_mutex_lock(&queue.lock);
	}
	*orphan_count = dequeue_orphans_locked(orphans);
	while (count < SPW_QUEUE_BATCH && queue.ready.first != NULL) {
		inodes[count] = pop(&queue.ready);
		inodes[count++]->unsealed = false;
	}
	queue.in_hand += count + *orphan_count;
	pthread_mutex_unlock(&queue.lock);
	return count;
}

void spw_queue_done(unsigned int count)
{
	pthread_mutex_lock(&queue.lock);
	queue.in_hand -= count;
	pthread_cond_broadcast(&queue.idle);
	pthread_mutex_unlock(&queue.lock);
}

void spw_queue_start(void)
{
	spw_condition_start(&queue.work);
}

bool spw_queue_flush(unsigned int seconds)
{
	struct timespec until;
	int rc = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += seconds;
	pthread_mutex_lock(&queue.lock);
	while ((queue.unsynced.first != NULL || queue.ready.first != NULL || queue.later != NULL || queue.orphans != NULL ||
		queue.in_hand > 0) &&
	       rc == 0)
		rc = pthread_cond_timedwait(&queue.idle, &queue.lock, &until);
	pthread_mutex_unlock(&queue.lock);
	return rc == 0;
}
