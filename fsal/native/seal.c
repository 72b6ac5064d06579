/* Sealer: one thread that seals files whose last writer closed, and reclaims orphans, in
 * transactions of many. Other threads sync the files before: no file waits for another one's bytes.
 */
#include "seal.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include "bytes.h"
#include "space.h"
#include "util.h"

#define SYNCERS 8

static bool wants_seal_locked(const struct spw_inode *inode)
{
	return inode->write_open && inode->writers == 0 && !inode->orphan;
}

/* Puts the bytes on stable storage without the lock, so that other calls can use the inode. */
static void sync_before(struct spw_inode *inode)
{
	bool wanted;

	if (atomic_load(&inode->error) != 0 && !atomic_load(&inode->is_noted))
		spw_damage_note(inode, "bytes could not be written");
	pthread_mutex_lock(&inode->meta);
	wanted = wants_seal_locked(inode);
	pthread_mutex_unlock(&inode->meta);
	if (wanted)
		(void)spw_commit(inode); /* prepare_locked sees a failure */
}

static void *syncer(void *argument)
{
	(void)argument;
	for (;;) {
		struct spw_inode *inode = spw_queue_to_sync();

		sync_before(inode);
		spw_queue_synced(inode);
	}
	return NULL;
}

static void let_go_locked(struct spw_inode *inode)
{
	if (inode->fd_kept)
		spw_fd_release(inode);
	inode->fd_kept = false;
}

/* Refuses to seal a file. A file with lost bytes is never drained as if it were whole, until it is
 * truncated. A try follows if the failure may pass, or if the namespace does not know of the
 * damage. */
static bool refuse_locked(struct spw_inode *inode, bool *again)
{
	bool is_lost = atomic_load(&inode->error) != 0;

	*again = !is_lost || !atomic_load(&inode->is_noted);
	if (is_lost)
		let_go_locked(inode);
	return false;
}

/* Fills the seal for the namespace. Returns false if the file is not sealed now. */
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
	/* A writer came after the sync, or it failed: other files do not wait for these bytes. */
	if (atomic_load(&inode->synced) < writes)
		return refuse_locked(inode, again);
	rc = spw_fd_get(inode, SPW_ABSENT_FAILS, &fd);
	if (rc == 0) {
		if (fstat(fd, &st) != 0)
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

/* Takes the answer to a seal. On failure the file stays open for writing, here and in the
 * namespace: its attributes still come from the data file, and the seal is tried again. */
static bool finish_locked(struct spw_inode *inode, const struct spw_seal *seal)
{
	if (seal->status == 0) {
		spw_learn_locked(inode, &seal->attr);
	} else if (seal->status != ESTALE) { /* ESTALE: the last name and the row are deleted */
		if (atomic_load(&inode->synced) >= atomic_load(&inode->writes))
			let_go_locked(inode); /* all is synced: to close it loses nothing */
		return false;
	}
	inode->sealed += seal->data.writes;
	spw_space_sealed(atomic_exchange(&inode->grown, 0), seal->status == 0);
	inode->write_open = false;
	spw_expect_bytes_locked(inode);
	let_go_locked(inode);
	return true;
}

/* Seals the files without a writer, in one transaction. */
static void seal_batch(struct spw_inode **inodes, unsigned int count)
{
	struct spw_seal seals[SPW_QUEUE_BATCH];
	struct spw_inode *sealing[SPW_QUEUE_BATCH];
	bool later[SPW_QUEUE_BATCH] = { false };
	unsigned int ready = 0;

	/* A new writer waits for the answer to the seal: it must open a new version. */
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
		/* A file that could not be sealed waits apart, and the queue keeps the handle. */
		if (later[i] && spw_queue_again(inodes[i]))
			continue;
		if (!later[i])
			spw_queue_settled(inodes[i]);
		spw_inode_put(inodes[i]);
	}
}

/* Reclaims orphans. Their bytes are deleted after their rows: a crash in between costs space, never
 * the bytes of a file with a row. */
static void reclaim_batch(struct spw_orphan *orphans, unsigned int count)
{
	if (count == 0)
		return;
	spw_namespace()->reclaim(orphans, count);
	for (unsigned int i = 0; i < count; i++)
		if (orphans[i].status == 0)
			spw_reclaimed(orphans[i].ino, orphans[i].epoch);
	spw_queue_orphans_done(orphans, count);
}

static void *sealer(void *argument)
{
	struct spw_inode *inodes[SPW_QUEUE_BATCH];
	struct spw_orphan orphans[SPW_QUEUE_BATCH];

	(void)argument;
	for (;;) {
		unsigned int orphan_count, count = spw_queue_take(inodes, orphans, &orphan_count);

		seal_batch(inodes, count);
		reclaim_batch(orphans, orphan_count);
		spw_queue_done(count + orphan_count);
	}
	return NULL;
}

int spw_sealer_start(void)
{
	int rc = 0;

	spw_queue_start();
	for (int i = 0; rc == 0 && i < SYNCERS; i++)
		rc = spw_thread_start(syncer, NULL);
	return rc != 0 ? rc : spw_thread_start(sealer, NULL);
}
