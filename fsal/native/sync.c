/* Sync of data files: threads that wait share one fdatasync, and a failure is final. */
#include "bytes.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static atomic_uint lost;

uint32_t spw_lost_count(void)
{
	return atomic_load(&lost);
}

static void sync_failed(struct spw_inode *inode, const char *call)
{
	char reason[128];

	snprintf(reason, sizeof(reason), "%s failed: %s", call, strerror(errno));
	fprintf(stderr, "spillway: inode %llu: %s\n", (unsigned long long)inode->ino, reason);
	/* The damage is recorded before any answer: a restart must not take the file for whole. */
	spw_damage_note(inode, reason);
	atomic_store(&inode->error, EIO);
	atomic_fetch_add(&lost, 1);
}

static void sync_now(struct spw_inode *inode, int fd)
{
	uint_fast64_t covered = atomic_load(&inode->writes);

	if (fdatasync(fd) != 0 || spw_fd_sync_entry(inode) != 0) {
		sync_failed(inode, "fdatasync");
		return;
	}
	atomic_store(&inode->synced, covered);
}

/* Lets one thread sync, without the lock, until its outcome is noted. */
static void sync_begin_locked(struct spw_inode *inode)
{
	while (inode->syncing)
		pthread_cond_wait(&inode->sync_done, &inode->sync_lock);
	inode->syncing = true;
	pthread_mutex_unlock(&inode->sync_lock);
}

static void sync_end_locked(struct spw_inode *inode)
{
	pthread_mutex_lock(&inode->sync_lock);
	inode->syncing = false;
	pthread_cond_broadcast(&inode->sync_done);
}

int spw_sync_fd(struct spw_inode *inode, int fd)
{
	uint_fast64_t wanted = atomic_load(&inode->writes);
	int rc;

	pthread_mutex_lock(&inode->sync_lock);
	for (;;) {
		rc = atomic_load(&inode->error);
		if (rc != 0 || atomic_load(&inode->synced) >= wanted)
			break;
		if (inode->syncing) {
			pthread_cond_wait(&inode->sync_done, &inode->sync_lock);
			continue;
		}
		sync_begin_locked(inode);
		sync_now(inode, fd);
		sync_end_locked(inode);
	}
	pthread_mutex_unlock(&inode->sync_lock);
	return rc;
}

int spw_sync_times(struct spw_inode *inode, int fd)
{
	int rc = 0;

	pthread_mutex_lock(&inode->sync_lock);
	/* The kernel reports an error once: a COMMIT beside this call must wait for its outcome. */
	sync_begin_locked(inode);
	if (fsync(fd) != 0) {
		sync_failed(inode, "fsync");
		rc = EIO;
	}
	sync_end_locked(inode);
	pthread_mutex_unlock(&inode->sync_lock);
	return rc;
}
