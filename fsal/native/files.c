#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files.h"

#define SHARDS 256u /* gateway/data/layout.py has the same rule */

static int shard_fd[SHARDS];
static int dir_fd = -1;
static atomic_uint lost;

int spw_files_start(const char *dir)
{
	char name[3];

	dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0)
		return errno;
	for (unsigned int i = 0; i < SHARDS; i++) {
		snprintf(name, sizeof(name), "%02x", i);
		shard_fd[i] = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (shard_fd[i] < 0)
			return errno;
	}
	return 0;
}

int spw_files_dir_fd(void)
{
	return dir_fd;
}

uint32_t spw_lost_count(void)
{
	return atomic_load(&lost);
}

/* ---- the descriptor ---- */

struct name {
	char text[48];
};

static struct name name_of(uint64_t ino, uint64_t epoch)
{
	struct name name;

	snprintf(name.text, sizeof(name.text), "%llu.%llu", (unsigned long long)ino,
		 (unsigned long long)epoch);
	return name;
}

void spw_unlink(uint64_t ino, uint64_t epoch)
{
	struct name name = name_of(ino, epoch);

	if (unlinkat(shard_fd[ino % SHARDS], name.text, 0) != 0 && errno != ENOENT)
		fprintf(stderr, "spillway: %s: cannot be deleted: %s\n", name.text, strerror(errno));
}

static int open_locked(struct spw_inode *inode, int flags)
{
	struct name name = name_of(inode->ino, inode->epoch);

	inode->fd = openat(shard_fd[inode->ino % SHARDS], name.text, O_RDWR | O_CLOEXEC | flags, 0600);
	if (inode->fd >= 0)
		return 0;
	/* Too many open files passes; the client should come back. */
	return errno == EMFILE || errno == ENFILE ? EAGAIN : errno;
}

int spw_fd_get(struct spw_inode *inode, int flags, int *fd)
{
	int rc = 0;

	pthread_mutex_lock(&inode->fd_lock);
	if (inode->fd < 0)
		rc = open_locked(inode, flags);
	if (rc == 0)
		inode->fd_users++;
	*fd = inode->fd;
	pthread_mutex_unlock(&inode->fd_lock);
	return rc;
}

void spw_fd_hold(struct spw_inode *inode)
{
	pthread_mutex_lock(&inode->fd_lock);
	inode->fd_users++;
	pthread_mutex_unlock(&inode->fd_lock);
}

void spw_fd_release(struct spw_inode *inode)
{
	pthread_mutex_lock(&inode->fd_lock);
	if (--inode->fd_users == 0 && inode->fd >= 0) {
		close(inode->fd);
		inode->fd = -1;
	}
	pthread_mutex_unlock(&inode->fd_lock);
}

/* ---- stable storage ---- */

static void sync_failed(struct spw_inode *inode, const char *call)
{
	fprintf(stderr, "spillway: inode %llu: %s failed: %s\n", (unsigned long long)inode->ino, call,
		strerror(errno));
	atomic_store(&inode->error, EIO);
	atomic_fetch_add(&lost, 1);
}

static void sync_now(struct spw_inode *inode, int fd)
{
	uint_fast64_t covered = atomic_load(&inode->writes);

	if (fdatasync(fd) != 0 ||
	    (!inode->entry_durable && fsync(shard_fd[inode->ino % SHARDS]) != 0)) {
		sync_failed(inode, "fdatasync");
		return;
	}
	inode->entry_durable = true;
	atomic_store(&inode->synced, covered);
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
		inode->syncing = true;
		pthread_mutex_unlock(&inode->sync_lock);
		sync_now(inode, fd);
		pthread_mutex_lock(&inode->sync_lock);
		inode->syncing = false;
		pthread_cond_broadcast(&inode->sync_done);
	}
	pthread_mutex_unlock(&inode->sync_lock);
	return rc;
}

int spw_sync_times(struct spw_inode *inode, int fd)
{
	if (fsync(fd) == 0)
		return 0;
	sync_failed(inode, "fsync");
	return EIO;
}

int spw_commit(struct spw_inode *inode)
{
	int fd, rc;

	if (atomic_load(&inode->synced) >= atomic_load(&inode->writes))
		return atomic_load(&inode->error);
	rc = spw_fd_get(inode, 0, &fd);
	if (rc != 0)
		return rc;
	rc = spw_sync_fd(inode, fd);
	spw_fd_release(inode);
	return rc;
}

/* Begins a change of the bytes: a writer and its descriptor. */
static int change_begin(struct spw_inode *inode, int *fd)
{
	int rc = spw_writer_begin(inode, NULL);

	if (rc != 0)
		return rc;
	rc = spw_fd_get(inode, O_CREAT, fd);
	if (rc != 0)
		spw_writer_end(inode);
	return rc;
}

static void change_end(struct spw_inode *inode)
{
	spw_fd_release(inode);
	/* As a writer until here: a seal in between would miss this change. */
	spw_writer_end(inode);
}

/* ---- bytes ---- */

int spw_read(struct spw_inode *inode, const struct iovec *iov, int count, uint64_t offset,
	     size_t *amount, bool *eof)
{
	struct spw_attr attr;
	struct stat st;
	size_t wanted = 0;
	ssize_t got;
	int fd, rc;

	*amount = 0;
	*eof = true;
	rc = spw_fd_get(inode, 0, &fd);
	if (rc == ENOENT) {
		/* Never written: there is no data file. Anything else is lost data. */
		rc = spw_getattr(inode, &attr);
		return rc != 0 ? rc : attr.size == 0 ? 0 : EIO;
	}
	if (rc != 0)
		return rc;
	got = preadv(fd, iov, count, (off_t)offset);
	if (got < 0) {
		rc = errno;
	} else {
		for (int i = 0; i < count; i++)
			wanted += iov[i].iov_len;
		*amount = (size_t)got;
		if ((size_t)got == wanted && fstat(fd, &st) == 0)
			*eof = offset + (uint64_t)got >= (uint64_t)st.st_size;
	}
	spw_fd_release(inode);
	return rc;
}

/* Counts what a file takes on the disk more than its row says. Not by its end: clients send what lies
 * behind before what lies in front. */
static void grow(struct spw_inode *inode, int fd)
{
	uint64_t used, grown;
	struct stat st;

	if (fstat(fd, &st) != 0)
		return;
	used = (uint64_t)st.st_blocks * 512;
	grown = used > inode->row_used ? used - inode->row_used : 0;
	spw_space_grown((int64_t)(grown - atomic_exchange(&inode->grown, grown)));
}

int spw_write(struct spw_inode *inode, const struct iovec *iov, int count, uint64_t offset,
	      bool stable, size_t *amount)
{
	ssize_t put;
	int fd, rc;

	*amount = 0;
	rc = atomic_load(&inode->error);
	if (rc == 0)
		rc = change_begin(inode, &fd);
	if (rc != 0)
		return rc;
	put = pwritev(fd, iov, count, (off_t)offset);
	if (put < 0) {
		rc = errno == ENOSPC ? spw_space_refused() : errno;
	} else {
		*amount = (size_t)put;
		atomic_fetch_add(&inode->writes, 1);
		grow(inode, fd);
		if (stable)
			rc = spw_sync_fd(inode, fd);
	}
	change_end(inode);
	return rc;
}

int spw_truncate(struct spw_inode *inode, uint64_t size)
{
	int fd, rc;

	if (size > INT64_MAX)
		return EFBIG;
	rc = change_begin(inode, &fd);
	if (rc != 0)
		return rc;
	if (ftruncate(fd, (off_t)size) != 0) {
		rc = errno;
	} else {
		atomic_fetch_add(&inode->writes, 1);
		grow(inode, fd);
		if (size == 0) /* none of the bytes that were lost is left */
			atomic_store(&inode->error, 0);
		rc = spw_sync_fd(inode, fd);
	}
	change_end(inode);
	return rc;
}

int spw_seek(struct spw_inode *inode, uint64_t offset, int whence, uint64_t *found)
{
	off_t at;
	int fd, rc;

	rc = spw_fd_get(inode, 0, &fd);
	if (rc != 0)
		return rc == ENOENT ? ENXIO : rc;
	at = lseek(fd, (off_t)offset, whence);
	rc = at < 0 ? errno : 0;
	*found = (uint64_t)at;
	spw_fd_release(inode);
	return rc;
}

int spw_allocate(struct spw_inode *inode, uint64_t offset, uint64_t length, bool allocate)
{
	int mode = allocate ? 0 : FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE;
	int fd, rc;

	rc = change_begin(inode, &fd);
	if (rc != 0)
		return rc;
	if (fallocate(fd, mode, (off_t)offset, (off_t)length) != 0) {
		rc = errno == ENOSPC ? spw_space_refused() : errno;
	} else {
		atomic_fetch_add(&inode->writes, 1);
		grow(inode, fd);
		rc = spw_sync_fd(inode, fd);
	}
	change_end(inode);
	return rc;
}
