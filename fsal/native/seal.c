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
#define AGAIN_SECONDS 1

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
	struct orphan *orphans;
	unsigned int in_hand;
} queue = { .lock = PTHREAD_MUTEX_INITIALIZER,
	    .work = PTHREAD_COND_INITIALIZER,
	    .idle = PTHREAD_COND_INITIALIZER,
	    .last = &queue.first };

static void enqueue(struct spw_inode *inode)
{
	pthread_mutex_lock(&queue.lock);
	if (!inode->unsealed) {
		/* Only this object knows the file's size until it is sealed: it must not go. */
		spw_inode_hold(inode);
		inode->unsealed = true;
		inode->next_unsealed = NULL;
		*queue.last = inode;
		queue.last = &inode->next_unsealed;
		pthread_cond_signal(&queue.work);
	}
	pthread_mutex_unlock(&queue.lock);
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

/* Waits for something to do, and then for what comes with it: nobody waits for the sealer. */
static unsigned int dequeue(struct spw_inode **inodes, struct spw_orphan *orphans,
			    unsigned int *orphan_count)
{
	unsigned int count = 0;

	pthread_mutex_lock(&queue.lock);
	if (queue.first == NULL && queue.orphans == NULL) {
		while (queue.first == NULL && queue.orphans == NULL)
			pthread_cond_wait(&queue.work, &queue.lock);
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

/* ---- writers ---- */

/* Gives the data file an mtime, if there is one: whoever has only the file (after a crash, or to seal
 * it) must find the mtime that clients were told. */
static int carry_mtime(struct spw_inode *inode, int64_t mtime_ns)
{
	struct timespec times[2] = {
		{ .tv_nsec = UTIME_OMIT },
		{ .tv_sec = mtime_ns / 1000000000, .tv_nsec = mtime_ns % 1000000000 },
	};
	struct stat st;
	int fd, rc;

	if (times[1].tv_nsec < 0) {
		times[1].tv_nsec += 1000000000;
		times[1].tv_sec--;
	}
	rc = spw_fd_get(inode, 0, &fd);
	if (rc != 0)
		return rc == ENOENT ? 0 : rc; /* never written */
	if (fstat(fd, &st) != 0)
		rc = errno;
	else if (spw_ns(&st.st_mtim) != mtime_ns)
		rc = futimens(fd, times) != 0 ? errno : spw_sync_times(inode, fd);
	spw_fd_release(inode);
	return rc;
}

/* The version moves, and from here on fstat is the truth. A client may have set the mtime since the
 * file was sealed: then it is in the row alone. */
static int open_locked(struct spw_inode *inode, struct spw_attr *attr)
{
	int rc = 0;

	if (inode->attr_known)
		*attr = inode->attr;
	else
		rc = spw_namespace()->getattr(inode->ino, attr);
	if (rc == 0)
		rc = carry_mtime(inode, attr->mtime_ns);
	return rc != 0 ? rc : spw_namespace()->open_write(inode->ino, attr);
}

int spw_writer_begin(struct spw_inode *inode, const struct spw_attr *created)
{
	struct spw_attr attr;
	int rc = 0;

	pthread_mutex_lock(&inode->meta);
	if (created != NULL)
		attr = *created;
	else if (!inode->write_open)
		rc = open_locked(inode, &attr);
	if (rc == 0 && !inode->write_open) {
		spw_learn_locked(inode, &attr);
		inode->write_open = true;
		inode->row_used = attr.used;
		spw_fd_hold(inode);
	}
	if (rc == 0)
		inode->writers++;
	pthread_mutex_unlock(&inode->meta);
	return rc;
}

void spw_writer_end(struct spw_inode *inode)
{
	bool last;

	pthread_mutex_lock(&inode->meta);
	last = --inode->writers == 0;
	pthread_mutex_unlock(&inode->meta);
	if (last)
		enqueue(inode);
}

bool spw_keep_open(struct spw_inode *inode)
{
	bool is_open;

	pthread_mutex_lock(&inode->meta);
	is_open = inode->write_open;
	if (is_open)
		inode->writers++;
	pthread_mutex_unlock(&inode->meta);
	return is_open;
}

int spw_touch(struct spw_inode *inode, int64_t mtime_ns)
{
	bool is_open;

	pthread_mutex_lock(&inode->meta);
	is_open = inode->write_open;
	pthread_mutex_unlock(&inode->meta);
	/* Without the lock: all that was written goes to the disk with it. */
	return is_open ? carry_mtime(inode, mtime_ns) : 0;
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

	pthread_mutex_lock(&inode->meta);
	wanted = wants_seal_locked(inode);
	pthread_mutex_unlock(&inode->meta);
	if (wanted)
		(void)spw_commit(inode); /* what fails is seen below */
}

/* What the namespace is to be told; false: nothing now. */
static bool prepare_locked(struct spw_inode *inode, struct spw_seal *seal, bool *again)
{
	uint_fast64_t writes = atomic_load(&inode->writes);
	struct stat st;
	int fd, rc;

	if (!wants_seal_locked(inode))
		return false;
	memset(seal, 0, sizeof(*seal));
	seal->ino = inode->ino;
	seal->status = EIO;
	seal->data.writes = writes - inode->sealed;
	if (seal->data.writes == 0)
		return true;
	rc = spw_fd_get(inode, 0, &fd);
	if (rc == 0) {
		rc = spw_sync_fd(inode, fd);
		if (rc == 0 && fstat(fd, &st) != 0)
			rc = errno;
		spw_fd_release(inode);
	}
	if (rc != 0) {
		/* Lost bytes: never drained as if the file were whole, until it is truncated. */
		*again = atomic_load(&inode->error) == 0;
		return false;
	}
	seal->data.size = (uint64_t)st.st_size;
	seal->data.used = (uint64_t)st.st_blocks * 512;
	seal->data.mtime_ns = spw_ns(&st.st_mtim);
	return true;
}

/* On failure the file stays open for writing, here and in the namespace: its attributes keep coming
 * from the data file, and it is tried again. */
static bool finish_locked(struct spw_inode *inode, const struct spw_seal *seal)
{
	if (seal->status == 0)
		spw_learn_locked(inode, &seal->attr);
	else if (seal->status != ESTALE) /* its last name and its row are gone */
		return false;
	inode->sealed += seal->data.writes;
	spw_space_sealed(atomic_exchange(&inode->grown, 0), seal->status == 0);
	inode->write_open = false;
	spw_fd_release(inode);
	return true;
}

/* Seals what has no writer, in one transaction. Returns whether something must be tried again. */
static bool seal_batch(struct spw_inode **inodes, unsigned int count)
{
	struct spw_seal seals[BATCH];
	struct spw_inode *sealing[BATCH];
	bool later[BATCH] = { false }, failed = false;
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
			enqueue(inodes[i]);
		failed |= later[i];
		spw_inode_put(inodes[i]);
	}
	return failed;
}

/* Their bytes go after their rows: a crash between costs space, never a file with a row. */
static void reclaim_batch(struct spw_orphan *orphans, unsigned int count)
{
	if (count > 0)
		spw_namespace()->reclaim(orphans, count);
	for (unsigned int i = 0; i < count; i++)
		if (orphans[i].status == 0)
			spw_unlink(orphans[i].ino, orphans[i].epoch);
}

static void *sealer(void *argument)
{
	struct spw_inode *inodes[BATCH];
	struct spw_orphan orphans[BATCH];

	(void)argument;
	for (;;) {
		unsigned int orphan_count, count = dequeue(inodes, orphans, &orphan_count);
		bool failed = seal_batch(inodes, count);

		reclaim_batch(orphans, orphan_count);
		pthread_mutex_lock(&queue.lock);
		queue.in_hand = 0;
		pthread_cond_broadcast(&queue.idle);
		pthread_mutex_unlock(&queue.lock);
		if (failed)
			sleep(AGAIN_SECONDS);
	}
	return NULL;
}

int spw_sealer_start(void)
{
	return spw_thread_start(sealer, NULL);
}

bool spw_sealer_flush(unsigned int seconds)
{
	struct timespec until;
	int rc = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += seconds;
	pthread_mutex_lock(&queue.lock);
	while ((queue.first != NULL || queue.orphans != NULL || queue.in_hand > 0) && rc == 0)
		rc = pthread_cond_timedwait(&queue.idle, &queue.lock, &until);
	pthread_mutex_unlock(&queue.lock);
	return rc == 0;
}
