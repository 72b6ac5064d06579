/* Data files by epoch: where each is, and the one descriptor of each. */
#define _GNU_SOURCE
#include "bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define ASIDE "set-aside" /* gateway/namespace/data_files.py has the same place */
#define ASIDE_MAX 1000u
#define KEPT_DESCRIPTORS 64u
#define STAMP "stamp.json" /* gateway/namespace/data_files.py has the same name */
#define SHARDS 256u /* gateway/namespace/data_files.py has the same rule */

static int shard_fd[SHARDS];
static int dir_fd = -1;
static atomic_uint_fast64_t refused;

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

uint64_t spw_files_refused(void)
{
	return atomic_load(&refused);
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

int spw_file_stat(const struct spw_inode *inode, struct stat *st)
{
	struct name name = name_of(inode->ino, inode->epoch);

	return fstatat(shard_fd[inode->ino % SHARDS], name.text, st, 0) == 0 ? 0 : errno;
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

void spw_set_aside(uint64_t ino, uint64_t epoch)
{
	struct name name = name_of(ino, epoch);
	int shard = shard_fd[ino % SHARDS], rc = 0;

	if (faccessat(shard, name.text, F_OK, 0) == 0)
		rc = set_aside(shard, name.text);
	else if (errno != ENOENT)
		rc = errno;
	if (rc != 0)
		fprintf(stderr, "spillway: %s: cannot be moved to set-aside: %s\n", name.text,
			strerror(rc));
}

bool spw_files_answer(void)
{
	_Alignas(4096) char block[4096];
	ssize_t got = -1;
	int fd;

	/* Without the page cache, which answers for a disk that is gone. tmpfs has nothing else. */
	fd = openat(dir_fd, STAMP, O_RDONLY | O_CLOEXEC | O_DIRECT);
	if (fd < 0 && errno == EINVAL)
		fd = openat(dir_fd, STAMP, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		got = pread(fd, block, sizeof(block), 0);
		close(fd);
	}
	return got > 0;
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

/* Opens a data file, unless only the descriptors are left that names, connections and reports need.
 * Returns a descriptor, or -1 with errno. */
static int open_file(int shard, const char *name, int flags)
{
	int fd = openat(shard, name, flags | O_CLOEXEC, 0600);
	struct rlimit limit;

	if (fd < 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
	    (rlim_t)fd + KEPT_DESCRIPTORS < limit.rlim_cur)
		return fd;
	close(fd);
	errno = EMFILE;
	return -1;
}

/* Opens the data file of the present epoch, in place of an older one that is open. A call that
 * still uses the descriptor has the one or the other. */
static int open_locked(struct spw_inode *inode, enum spw_absent absent)
{
	struct name name = name_of(inode->ino, inode->epoch);
	int shard = shard_fd[inode->ino % SHARDS], fd;
	bool reads_only = false;
	struct stat st;

	fd = open_file(shard, name.text, O_RDWR);
	/* A disk that met an error is mounted read-only: what is on it can be read all the same. */
	if (fd < 0 && errno == EROFS && absent == SPW_ABSENT_FAILS) {
		reads_only = true;
		fd = open_file(shard, name.text, O_RDONLY);
	}
	if (fd < 0 && errno == ENOENT && absent != SPW_ABSENT_FAILS) {
		if (absent == SPW_ABSENT_IF_NEW && !inode->may_create)
			return EIO;
		fd = open_file(shard, name.text, O_RDWR | O_CREAT | O_EXCL);
		atomic_store(&inode->entry_durable, false);
	}
	if (fd < 0 && (errno == EMFILE || errno == ENFILE)) { /* the client should come back */
		atomic_fetch_add(&refused, 1);
		return EAGAIN;
	}
	if (fd < 0)
		return errno;
	if (inode->fd >= 0) {
		(void)dup3(fd, inode->fd, O_CLOEXEC); /* it cannot fail: both are open */
		close(fd);
	} else {
		inode->fd = fd;
	}
	inode->fd_epoch = inode->epoch;
	inode->fd_reads_only = reads_only;
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

void spw_fd_distrust(struct spw_inode *inode)
{
	pthread_mutex_lock(&inode->fd_lock);
	inode->leaving = true;
	pthread_mutex_unlock(&inode->fd_lock);
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
	else if (inode->fd < 0 || inode->fd_epoch != inode->epoch ||
		 (inode->fd_reads_only && absent != SPW_ABSENT_FAILS))
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

int spw_fd_get_to_read(struct spw_inode *inode, struct spw_reader *reader)
{
	int rc;

	pthread_mutex_lock(&inode->fd_lock);
	rc = get_locked(inode, SPW_ABSENT_FAILS, &reader->fd);
	reader->is_absent = atomic_load(&inode->is_absent);
	reader->epoch = inode->epoch;
	pthread_mutex_unlock(&inode->fd_lock);
	return rc;
}

bool spw_fd_is_current(struct spw_inode *inode, const struct spw_reader *reader)
{
	bool is_current;

	pthread_mutex_lock(&inode->fd_lock);
	is_current = inode->epoch == reader->epoch;
	pthread_mutex_unlock(&inode->fd_lock);
	return is_current;
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
