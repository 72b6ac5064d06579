/* Finds data files, and keeps the one descriptor of each. */
#define _GNU_SOURCE
#include "fd.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ASIDE "../set-aside" /* gateway/data/layout.py has the same place */
#define ASIDE_MAX 1000u
#define SHARDS 256u /* gateway/data/layout.py has the same rule */

static int shard_fd[SHARDS];
static int dir_fd = -1;

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

/* Moves a data file to set-aside under a free name. Nothing is deleted. */
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
		name.text, rc == 0 ? "moved to set-aside" : strerror(rc));
	return rc == 0 ? 0 : EIO;
}

/* Opens the data file of the present epoch, in place of an older one that is open. A call that
 * still uses the descriptor has the one or the other. */
static int open_locked(struct spw_inode *inode, enum spw_absent absent)
{
	struct name name = name_of(inode->ino, inode->epoch);
	int shard = shard_fd[inode->ino % SHARDS], fd;
	struct stat st;

	fd = openat(shard, name.text, O_RDWR | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT && absent != SPW_ABSENT_FAILS) {
		if (absent == SPW_ABSENT_IF_NEW && !inode->may_create)
			return EIO;
		fd = openat(shard, name.text, O_RDWR | O_CLOEXEC | O_CREAT | O_EXCL, 0600);
		atomic_store(&inode->entry_durable, false);
	}
	if (fd < 0) /* a lack of descriptors passes, so the client should come back */
		return errno == EMFILE || errno == ENFILE ? EAGAIN : errno;
	if (inode->fd >= 0) {
		(void)dup3(fd, inode->fd, O_CLOEXEC); /* it cannot fail: both are open */
		close(fd);
	} else {
		inode->fd = fd;
	}
	inode->fd_epoch = inode->epoch;
	inode->may_create = false;
	/* Bytes that are there already were sealed, and their directory entry was synced with
	 * them. */
	if (fstat(inode->fd, &st) == 0 && st.st_size > 0)
		atomic_store(&inode->entry_durable, true);
	return 0;
}

bool spw_fd_leave(struct spw_inode *inode)
{
	bool is_free;

	pthread_mutex_lock(&inode->fd_lock);
	is_free = inode->fd_users == 0;
	if (is_free)
		inode->leaving = true;
	pthread_mutex_unlock(&inode->fd_lock);
	return is_free;
}

void spw_fd_stay(struct spw_inode *inode)
{
	pthread_mutex_lock(&inode->fd_lock);
	inode->leaving = false;
	pthread_mutex_unlock(&inode->fd_lock);
}

void spw_fd_expect(struct spw_inode *inode, bool is_empty)
{
	pthread_mutex_lock(&inode->fd_lock);
	inode->may_create = is_empty;
	pthread_mutex_unlock(&inode->fd_lock);
}

static int get_locked(struct spw_inode *inode, enum spw_absent absent, int *fd)
{
	int rc = 0;

	if (inode->leaving)
		rc = EAGAIN;
	else if (inode->fd < 0 || inode->fd_epoch != inode->epoch)
		rc = open_locked(inode, absent);
	if (rc == 0)
		inode->fd_users++;
	*fd = inode->fd;
	return rc;
}

int spw_fd_get(struct spw_inode *inode, enum spw_absent absent, int *fd)
{
	int rc;

	pthread_mutex_lock(&inode->fd_lock);
	rc = get_locked(inode, absent, fd);
	pthread_mutex_unlock(&inode->fd_lock);
	return rc;
}

int spw_fd_get_to_read(struct spw_inode *inode, int *fd, bool *is_absent)
{
	int rc;

	pthread_mutex_lock(&inode->fd_lock);
	rc = get_locked(inode, SPW_ABSENT_FAILS, fd);
	*is_absent = atomic_load(&inode->is_absent);
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

int spw_fd_sync_entry(struct spw_inode *inode)
{
	if (!atomic_load(&inode->entry_durable) && fsync(shard_fd[inode->ino % SHARDS]) != 0)
		return errno;
	atomic_store(&inode->entry_durable, true);
	return 0;
}
