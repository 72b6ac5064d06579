#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files.h"

#define ASIDE "../lost+found" /* gateway/data/layout.py has the same place */
#define ASIDE_MAX 1000u
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

/* Moves a data file out of the way under a name that is free; nothing is deleted. */
static int set_aside(int shard, const char *name)
{
	char to[64];
	int aside, rc = EEXIST;

	if (mkdirat(dir_fd, ASIDE, 0700) != 0 && errno != EEXIST)
		return errno;
	aside = openat(dir_fd, ASIDE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (aside < 0)
		return errno;
	for (unsigned int i = 0; rc == EEXIST && i < ASIDE_MAX; i++) {
		snprintf(to, sizeof(to), i == 0 ? "%s" : "%s~%u", name, i);
		rc = renameat2(shard, name, aside, to, RENAME_NOREPLACE) == 0 ? 0 : errno;
	}
	if (rc == 0 && (fsync(aside) != 0 || fsync(shard) != 0))
		rc = errno;
	close(aside);
	return rc;
}

int spw_expect_no_file(const struct spw_inode *inode)
{
	struct name name = name_of(inode->ino, inode->epoch);
	int shard = shard_fd[inode->ino % SHARDS], rc;

	if (faccessat(shard, name.text, F_OK, 0) != 0)
		return errno == ENOENT ? 0 : EIO;
	rc = set_aside(shard, name.text);
	fprintf(stderr, "spillway: a data file %s was there before its inode: %s; run: spillway fsck\n",
		name.text, rc == 0 ? "moved to lost+found" : strerror(rc));
	return rc == 0 ? 0 : EIO;
}

static int open_locked(struct spw_inode *inode, enum spw_absent absent)
{
	struct name name = name_of(inode->ino, inode->epoch);
	int shard = shard_fd[inode->ino % SHARDS];
	struct stat st;

	inode->fd = openat(shard, name.text, O_RDWR | O_CLOEXEC);
	if (inode->fd < 0 && errno == ENOENT && absent != SPW_ABSENT_FAILS) {
		if (absent == SPW_ABSENT_IF_NEW && !inode->may_create)
			return EIO;
		inode->fd = openat(shard, name.text, O_RDWR | O_CLOEXEC | O_CREAT | O_EXCL, 0600);
		atomic_store(&inode->entry_durable, false);
	}
	if (inode->fd < 0) /* Too many open files passes; the client should come back. */
		return errno == EMFILE || errno == ENFILE ? EAGAIN : errno;
	inode->may_create = false;
	/* Bytes from before are of a version that was sealed, with its entry. */
	if (fstat(inode->fd, &st) == 0 && st.st_size > 0)
		atomic_store(&inode->entry_durable, true);
	return 0;
}

void spw_fd_expect(struct spw_inode *inode, bool is_empty)
{
	pthread_mutex_lock(&inode->fd_lock);
	inode->may_create = is_empty;
	pthread_mutex_unlock(&inode->fd_lock);
}

int spw_fd_get(struct spw_inode *inode, enum spw_absent absent, int *fd)
{
	int rc = 0;

	pthread_mutex_lock(&inode->fd_lock);
	if (inode->fd < 0)
		rc = open_locked(inode, absent);
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
	char reason[128];

	snprintf(reason, sizeof(reason), "%s failed: %s", call, strerror(errno));
	fprintf(stderr, "spillway: inode %llu: %s\n", (unsigned long long)inode->ino, reason);
	/* Before anybody is told: a restart must not take the file for whole. */
	spw_damage_note(inode, reason);
	atomic_store(&inode->error, EIO);
	atomic_fetch_add(&lost, 1);
}

static void sync_now(struct spw_inode *inode, int fd)
{
	uint_fast64_t covered = atomic_load(&inode->writes);

	if (fdatasync(fd) != 0 ||
	    (!atomic_load(&inode->entry_durable) && fsync(shard_fd[inode->ino % SHARDS]) != 0)) {
		sync_failed(inode, "fdatasync");
		return;
	}
	atomic_store(&inode->entry_durable, true);
	atomic_store(&inode->synced, covered);
}

/* One thread syncs, without the lock, until its outcome is noted. */
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
	/* The kernel tells the error once: a COMMIT beside this one must wait until it is noted. */
	sync_begin_locked(inode);
	if (fsync(fd) != 0) {
		sync_failed(inode, "fsync");
		rc = EIO;
	}
	sync_end_locked(inode);
	pthread_mutex_unlock(&inode->sync_lock);
	return rc;
}

int spw_commit(struct spw_inode *inode)
{
	int fd, rc;

	if (atomic_load(&inode->synced) >= atomic_load(&inode->writes))
		return atomic_load(&inode->error);
	rc = spw_fd_get(inode, SPW_ABSENT_FAILS, &fd);
	if (rc != 0)
		return rc;
	rc = spw_sync_fd(inode, fd);
	spw_fd_release(inode);
	return rc;
}

/* Begins a change of the bytes: a writer and its descriptor. */
static int change_begin(struct spw_inode *inode, enum spw_absent absent, int *fd)
{
	int rc = spw_writer_begin(inode, NULL);

	if (rc != 0)
		return rc;
	rc = spw_fd_get(inode, absent, fd);
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
	rc = atomic_load(&inode->error);
	if (rc != 0) /* some of the bytes are not what was written */
		return rc;
	rc = spw_fd_get(inode, SPW_ABSENT_FAILS, &fd);
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
		rc = change_begin(inode, SPW_ABSENT_IF_NEW, &fd);
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

/* Counts a change that left the bytes as they were: there is nothing to sync for it. */
static void count_touched(struct spw_inode *inode)
{
	uint_fast64_t before = atomic_fetch_add(&inode->writes, 1);

	(void)atomic_compare_exchange_strong(&inode->synced, &before, before + 1);
}

/* None of the bytes that were lost is left: once that is durable, the file is whole again. */
static int sync_emptied(struct spw_inode *inode, int fd)
{
	int error = atomic_exchange(&inode->error, 0);
	int rc = spw_sync_fd(inode, fd);

	if (rc == 0 && error != 0)
		rc = spw_damage_clear(inode);
	if (rc != 0 && error != 0)
		atomic_store(&inode->error, error);
	return rc;
}

static int truncate_fd(struct spw_inode *inode, int fd, uint64_t size)
{
	bool is_touched;
	struct stat st;

	if (fstat(fd, &st) != 0)
		return errno;
	/* Where the row has bytes, a crash must not bring them back, nor that they are missing. */
	is_touched = size == 0 && inode->row_size == 0 && st.st_size == 0 && st.st_blocks == 0 &&
		     atomic_load(&inode->error) == 0;
	if (ftruncate(fd, (off_t)size) != 0)
		return errno;
	if (is_touched) {
		count_touched(inode);
		return 0;
	}
	atomic_fetch_add(&inode->writes, 1);
	grow(inode, fd);
	return size == 0 ? sync_emptied(inode, fd) : spw_sync_fd(inode, fd);
}

int spw_truncate(struct spw_inode *inode, uint64_t size)
{
	enum spw_absent absent = size == 0 ? SPW_ABSENT_IS_EMPTY : SPW_ABSENT_IF_NEW;
	int fd, rc;

	if (size > INT64_MAX)
		return EFBIG;
	rc = size > 0 ? atomic_load(&inode->error) : 0;
	if (rc == 0)
		rc = change_begin(inode, absent, &fd);
	if (rc != 0)
		return rc;
	rc = truncate_fd(inode, fd, size);
	change_end(inode);
	return rc;
}

int spw_seek(struct spw_inode *inode, uint64_t offset, int whence, uint64_t *found)
{
	off_t at;
	int fd, rc;

	rc = spw_fd_get(inode, SPW_ABSENT_FAILS, &fd);
	if (rc != 0) /* an empty file is never asked about: its bytes are lost */
		return rc == ENOENT ? EIO : rc;
	at = lseek(fd, (off_t)offset, whence);
	rc = at < 0 ? errno : 0;
	*found = (uint64_t)at;
	spw_fd_release(inode);
	return rc;
}

int spw_allocate(struct spw_inode *inode, uint64_t offset, uint64_t length, bool allocate)
{
	int mode = allocate ? 0 : FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE;
	int fd, rc = atomic_load(&inode->error);

	if (rc == 0)
		rc = change_begin(inode, SPW_ABSENT_IF_NEW, &fd);
	if (rc != 0)
		return rc;
	if (fallocate(fd, mode, (off_t)offset, (off_t)length) != 0)
		rc = errno == ENOSPC ? spw_space_refused() : errno;
	/* Also what failed may have changed a part. */
	atomic_fetch_add(&inode->writes, 1);
	grow(inode, fd);
	if (rc == 0)
		rc = spw_sync_fd(inode, fd);
	change_end(inode);
	return rc;
}
