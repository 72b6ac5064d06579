#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "files.h"
#include "thread.h"

#define BATCH 64u
#define GATHER_US 2000
#define PAUSE_MS 1000u /* before a file that could not be sealed is tried again; then twice as long */
#define PAUSE_MAX_MS 32000u

struct orphan {
	struct orphan *next;
	struct spw_orphan what;
};

/* Inodes without a writer that the namespace still has open for writing; orphans. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t work;
	pthread_cond_t idle;
	struct spw_inode *first, **last;
	struct spw_inode *later; /* those that wait until `again_ms` */
	uint64_t due_ms;         /* of the first of them */
	struct orphan *orphans;
	unsigned int in_hand;
} queue = { .lock = PTHREAD_MUTEX_INITIALIZER,
	    .idle = PTHREAD_COND_INITIALIZER,
	    .last = &queue.first };

static uint64_t clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void append_locked(struct spw_inode *inode)
{
	inode->next_unsealed = NULL;
	*queue.last = inode;
	queue.last = &inode->next_unsealed;
}

void spw_seal_later(struct spw_inode *inode)
{
	pthread_mutex_lock(&queue.lock);
	if (!inode->unsealed) {
		/* Only this object knows the file's size until it is sealed: it must not go. */
		spw_inode_hold(inode);
		inode->unsealed = true;
		append_locked(inode);
		pthread_cond_signal(&queue.work);
	}
	pthread_mutex_unlock(&queue.lock);
}

/* One that could not be sealed waits by itself: the others must not wait with it. */
static void postpone(struct spw_inode *inode)
{
	pthread_mutex_lock(&queue.lock);
	if (!inode->unsealed) {
		spw_inode_hold(inode);
		inode->unsealed = true;
		inode->pause_ms = inode->pause_ms == 0 ? PAUSE_MS : inode->pause_ms * 2;
		if (inode->pause_ms > PAUSE_MAX_MS)
			inode->pause_ms = PAUSE_MAX_MS;
		inode->again_ms = clock_ms() + inode->pause_ms;
		if (queue.later == NULL || inode->again_ms < queue.due_ms)
			queue.due_ms = inode->again_ms;
		inode->next_unsealed = queue.later;
		queue.later = inode;
	}
	pthread_mutex_unlock(&queue.lock);
}

/* Queues those whose time has come. */
static void resume_locked(void)
{
	struct spw_inode *inode = queue.later;
	uint64_t now = clock_ms();

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

void spw_reclaim(uint64_t ino, uint64_t epoch)
{
	struct orphan *orphan = malloc(sizeof(*orphan));

	if (orphan == NULL)
		return; /* the next start reclaims it */
	orphan->what = (struct spw_orphan){ .ino = ino, .epoch = epoch, .status = EIO };
	pthread_mutex_lock(&queue.lock);
	orphan->next = queue.orphans;
	queue.orphans = orphan;
	pthread_cond_signal(&queue.work);
	pthread_mutex_unlock(&queue.lock);
}

static unsigned int dequeue_orphans_locked(struct spw_orphan *orphans)
{
	unsigned int count = 0;

	while (count < BATCH && queue.orphans != NULL) {
		struct orphan *orphan = queue.orphans;

		orphans[count++] = orphan->what;
		queue.orphans = orphan->next;
		free(orphan);
	}
	return count;
}

static void wait_locked(void)
{
	struct timespec until = { .tv_sec = (time_t)(queue.due_ms / 1000),
				  .tv_nsec = (long)(queue.due_ms % 1000) * 1000000 };

	if (queue.later == NULL)
		pthread_cond_wait(&queue.work, &queue.lock);
	else
		pthread_cond_timedwait(&queue.work, &queue.lock, &until);
	resume_locked();
}

/* Waits for something to do, and then for what comes with it: nobody waits for the sealer. */
static unsigned int dequeue(struct spw_inode **inodes, struct spw_orphan *orphans,
			    unsigned int *orphan_count)
{
	unsigned int count = 0;

	pthread_mutex_lock(&queue.lock);
	resume_locked();
	if (queue.first == NULL && queue.orphans == NULL) {
		while (queue.first == NULL && queue.orphans == NULL)
			wait_locked();
		pthread_mutex_unlock(&queue.lock);
		usleep(GATHER_US);
		pthread_mutex_lock(&queue.lock);
	}
	*orphan_count = dequeue_orphans_locked(orphans);
	while (count < BATCH && queue.first != NULL) {
		inodes[count] = queue.first;
		queue.first = inodes[count]->next_unsealed;
		inodes[count++]->unsealed = false;
	}
	if (queue.first == NULL)
		queue.last = &queue.first;
	queue.in_hand = count + *orphan_count;
	pthread_mutex_unlock(&queue.lock);
	return count;
}

/* ---- sealing ---- */

static bool wants_seal_locked(const struct spw_inode *inode)
{
	return inode->write_open && inode->writers == 0 && !inode->orphan;
}

/* Puts the bytes on stable storage without keeping anybody from the inode. */
static void sync_before(struct spw_inode *inode)
{
	bool wanted;

	if (atomic_load(&inode->error) != 0 && !atomic_load(&inode->is_noted))
		spw_damage_note(inode, "bytes could not be written");
	pthread_mutex_lock(&inode->meta);
	wanted = wants_seal_locked(inode);
	pthread_mutex_unlock(&inode->meta);
	if (wanted)
		(void)spw_commit(inode); /* what fails is seen below */
}

static void let_go_locked(struct spw_inode *inode)
{
	if (inode->fd_kept)
		spw_fd_release(inode);
	inode->fd_kept = false;
}

/* Lost bytes: never drained as if the file were whole, until it is truncated. Tried again is what may
 * pass, and a damage that the namespace does not know of yet. */
static bool refuse_locked(struct spw_inode *inode, bool *again)
{
	bool is_lost = atomic_load(&inode->error) != 0;

	*again = !is_lost || !atomic_load(&inode->is_noted);
	if (is_lost)
		let_go_locked(inode);
	return false;
}

/* What the namespace is to be told; false: nothing now. */
static bool prepare_locked(struct spw_inode *inode, struct spw_seal *seal, bool *again)
{
	uint_fast64_t writes = atomic_load(&inode->writes);
	struct stat st;
	int fd, rc;

	if (!wants_seal_locked(inode))
		return false;
	if (atomic_load(&inode->error) != 0)
		return refuse_locked(inode, again);
	memset(seal, 0, sizeof(*seal));
	seal->ino = inode->ino;
	seal->status = EIO;
	seal->data.writes = writes - inode->sealed;
	if (seal->data.writes == 0)
		return true;
	rc = spw_fd_get(inode, SPW_ABSENT_FAILS, &fd);
	if (rc == 0) {
		rc = spw_sync_fd(inode, fd);
		if (rc == 0 && fstat(fd, &st) != 0)
			rc = errno;
		spw_fd_release(inode);
	}
	if (rc != 0)
		return refuse_locked(inode, again);
	seal->data.size = (uint64_t)st.st_size;
	seal->data.used = (uint64_t)st.st_blocks * 512;
	seal->data.mtime_ns = spw_ns(&st.st_mtim);
	return true;
}

/* On failure the file stays open for writing, here and in the namespace: its attributes keep coming
 * from the data file, and it is tried again. */
static bool finish_locked(struct spw_inode *inode, const struct spw_seal *seal)
{
	if (seal->status == 0) {
		spw_learn_locked(inode, &seal->attr);
	} else if (seal->status != ESTALE) { /* its last name and its row are gone */
		if (atomic_load(&inode->synced) >= atomic_load(&inode->writes))
			let_go_locked(inode); /* nothing is lost with the descriptor */
		return false;
	}
	inode->sealed += seal->data.writes;
	spw_space_sealed(atomic_exchange(&inode->grown, 0), seal->status == 0);
	inode->write_open = false;
	let_go_locked(inode);
	return true;
}

static void succeeded(struct spw_inode *inode)
{
	pthread_mutex_lock(&queue.lock);
	inode->pause_ms = 0;
	pthread_mutex_unlock(&queue.lock);
}

/* Seals what has no writer, in one transaction. */
static void seal_batch(struct spw_inode **inodes, unsigned int count)
{
	struct spw_seal seals[BATCH];
	struct spw_inode *sealing[BATCH];
	bool later[BATCH] = { false };
	unsigned int ready = 0;

	for (unsigned int i = 0; i < count; i++)
		sync_before(inodes[i]);
	/* A writer that comes now waits until the answer is here: it must open a new version. */
	for (unsigned int i = 0; i < count; i++) {
		pthread_mutex_lock(&inodes[i]->meta);
		if (prepare_locked(inodes[i], &seals[ready], &later[i]))
			sealing[ready++] = inodes[i];
		else
			pthread_mutex_unlock(&inodes[i]->meta);
	}
	if (ready > 0)
		spw_namespace()->seal(seals, ready);
	for (unsigned int i = 0; i < ready; i++) {
		bool done = finish_locked(sealing[i], &seals[i]);

		pthread_mutex_unlock(&sealing[i]->meta);
		for (unsigned int j = 0; !done && j < count; j++)
			later[j] |= inodes[j] == sealing[i];
	}
	for (unsigned int i = 0; i < count; i++) {
		if (later[i])
			postpone(inodes[i]);
		else
			succeeded(inodes[i]);
		spw_inode_put(inodes[i]);
	}
}

/* Their bytes go after their rows: a crash between costs space, never a file with a row. */
static void reclaim_batch(struct spw_orphan *orphans, unsigned int count)
{
	if (count > 0)
		spw_namespace()->reclaim(orphans, count);
	for (unsigned int i = 0; i < count; i++)
		if (orphans[i].status == 0)
			spw_reclaimed(orphans[i].ino, orphans[i].epoch);
}

static void *sealer(void *argument)
{
	struct spw_inode *inodes[BATCH];
	struct spw_orphan orphans[BATCH];

	(void)argument;
	for (;;) {
		unsigned int orphan_count, count = dequeue(inodes, orphans, &orphan_count);

		seal_batch(inodes, count);
		reclaim_batch(orphans, orphan_count);
		pthread_mutex_lock(&queue.lock);
		queue.in_hand = 0;
		pthread_cond_broadcast(&queue.idle);
		pthread_mutex_unlock(&queue.lock);
	}
	return NULL;
}

int spw_sealer_start(void)
{
	pthread_condattr_t attributes;

	/* A clock that is set must not stop the tries. */
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&queue.work, &attributes);
	pthread_condattr_destroy(&attributes);
	return spw_thread_start(sealer, NULL);
}

bool spw_sealer_flush(unsigned int seconds)
{
	struct timespec until;
	int rc = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += seconds;
	pthread_mutex_lock(&queue.lock);
	while ((queue.first != NULL || queue.later != NULL || queue.orphans != NULL || queue.in_hand > 0) && rc == 0)
		rc = pthread_cond_timedwait(&queue.idle, &queue.lock, &until);
	pthread_mutex_unlock(&queue.lock);
	return rc == 0;
}
