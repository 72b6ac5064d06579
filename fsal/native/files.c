#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files.h"

#define SHARDS 256u /* gateway/data/layout.py has the same rule */
#define BUCKETS 1024u

static struct {
	pthread_mutex_t lock;
	struct spw_inode *first;
} table[BUCKETS];

static int shard_fd[SHARDS];
static int dir_fd = -1;
static struct spw_inode_ops ops;
static atomic_uint lost;

int spw_files_start(const char *dir, const struct spw_inode_ops *namespace_ops)
{
	char name[3];

	ops = *namespace_ops;
	dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0)
		return errno;
	for (unsigned int i = 0; i < SHARDS; i++) {
		snprintf(name, sizeof(name), "%02x", i);
		shard_fd[i] = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (shard_fd[i] < 0)
			return errno;
	}
	for (unsigned int i = 0; i < BUCKETS; i++)
		pthread_mutex_init(&table[i].lock, NULL);
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

/* ---- the table of inodes ---- */

static struct spw_inode *inode_new(uint64_t ino, uint64_t epoch)
{
	struct spw_inode *inode = calloc(1, sizeof(*inode));

	if (inode == NULL)
		abort(); /* as Ganesha's own allocator does */
	inode->ino = ino;
	inode->epoch = epoch;
	inode->fd = -1;
	pthread_mutex_init(&inode->fd_lock, NULL);
	pthread_mutex_init(&inode->meta, NULL);
	return inode;
}

static struct spw_inode *find_locked(uint64_t ino)
{
	struct spw_inode *inode = table[ino % BUCKETS].first;

	while (inode != NULL && inode->ino != ino)
		inode = inode->next;
	return inode;
}

/* An existing inode object with one more handle, or NULL. */
static struct spw_inode *inode_find(uint64_t ino)
{
	pthread_mutex_t *lock = &table[ino % BUCKETS].lock;
	struct spw_inode *inode;

	pthread_mutex_lock(lock);
	inode = find_locked(ino);
	if (inode != NULL)
		inode->handles++;
	pthread_mutex_unlock(lock);
	return inode;
}

struct spw_inode *spw_inode_get(uint64_t ino, uint64_t epoch)
{
	pthread_mutex_t *lock = &table[ino % BUCKETS].lock;
	struct spw_inode *inode;

	pthread_mutex_lock(lock);
	inode = find_locked(ino);
	if (inode == NULL) {
		inode = inode_new(ino, epoch);
		inode->next = table[ino % BUCKETS].first;
		table[ino % BUCKETS].first = inode;
	}
	inode->handles++;
	pthread_mutex_unlock(lock);
	return inode;
}

static void seal_locked(struct spw_inode *inode);

void spw_inode_put(struct spw_inode *inode)
{
	pthread_mutex_t *lock = &table[inode->ino % BUCKETS].lock;
	struct spw_inode **link = &table[inode->ino % BUCKETS].first;
	bool last;

	/* A seal that failed is tried again while somebody still can. */
	pthread_mutex_lock(&inode->meta);
	if (inode->write_open && inode->writers == 0)
		seal_locked(inode);
	pthread_mutex_unlock(&inode->meta);

	pthread_mutex_lock(lock);
	/* An unsealed inode stays: only this object knows its size until the next start. */
	last = --inode->handles == 0 && (!inode->write_open || inode->orphan);
	if (last) {
		while (*link != inode)
			link = &(*link)->next;
		*link = inode->next;
	}
	pthread_mutex_unlock(lock);
	if (!last)
		return;
	if (inode->orphan)
		ops.reclaim(inode->ino, inode->epoch);
	if (inode->fd >= 0)
		close(inode->fd);
	pthread_mutex_destroy(&inode->fd_lock);
	pthread_mutex_destroy(&inode->meta);
	free(inode);
}

void spw_removed(const struct spw_removed *removed)
{
	struct spw_inode *inode;
	bool gone = removed->nlink == 0;

	if (removed->ino == 0 || removed->kind != SPW_REGULAR)
		return;
	inode = inode_find(removed->ino);
	if (inode == NULL) {
		if (gone)
			ops.reclaim(removed->ino, removed->epoch);
		return;
	}
	pthread_mutex_lock(&inode->meta);
	inode->attr_known = false;
	inode->orphan = gone;
	pthread_mutex_unlock(&inode->meta);
	spw_inode_put(inode);
}

/* ---- the descriptor ---- */

static int open_locked(struct spw_inode *inode, int flags)
{
	char name[48];

	snprintf(name, sizeof(name), "%llu.%llu", (unsigned long long)inode->ino,
		 (unsigned long long)inode->epoch);
	inode->fd = openat(shard_fd[inode->ino % SHARDS], name, O_RDWR | O_CLOEXEC | flags, 0600);
	if (inode->fd >= 0)
		return 0;
	/* Too many open files passes; the client should come back. */
	return errno == EMFILE || errno == ENFILE ? EAGAIN : errno;
}

/* A descriptor to use until spw_fd_release. flags: O_CREAT or 0. */
static int fd_get(struct spw_inode *inode, int flags, int *fd)
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

/* Puts all changes that were answered so far on stable storage. A failure is final: the kernel
 * drops the pages it could not write, so a later success would be a lie. */
static int sync_fd(struct spw_inode *inode, int fd)
{
	uint_fast64_t target = atomic_load(&inode->writes);
	uint_fast64_t before = atomic_load(&inode->synced);
	int error = atomic_load(&inode->error);

	if (error != 0)
		return error;
	if (before >= target)
		return 0;
	if (fdatasync(fd) != 0 ||
	    (!inode->entry_durable && fsync(shard_fd[inode->ino % SHARDS]) != 0)) {
		fprintf(stderr, "spillway: inode %llu: fdatasync failed: %s\n",
			(unsigned long long)inode->ino, strerror(errno));
		atomic_store(&inode->error, EIO);
		atomic_fetch_add(&lost, 1);
		return EIO;
	}
	inode->entry_durable = true;
	while (before < target && !atomic_compare_exchange_weak(&inode->synced, &before, target))
		;
	return 0;
}

int spw_commit(struct spw_inode *inode)
{
	int fd, rc;

	if (atomic_load(&inode->synced) >= atomic_load(&inode->writes))
		return atomic_load(&inode->error);
	rc = fd_get(inode, 0, &fd);
	if (rc != 0)
		return rc;
	rc = sync_fd(inode, fd);
	spw_fd_release(inode);
	return rc;
}

/* ---- writers ---- */

static void learn_locked(struct spw_inode *inode, const struct spw_attr *attr)
{
	/* Answers can overtake each other; change only grows. */
	if (!inode->attr_known || attr->change >= inode->attr.change) {
		inode->attr = *attr;
		inode->attr_known = true;
	}
}

void spw_attr_learned(struct spw_inode *inode, const struct spw_attr *attr)
{
	pthread_mutex_lock(&inode->meta);
	learn_locked(inode, attr);
	pthread_mutex_unlock(&inode->meta);
}

int spw_writer_begin(struct spw_inode *inode, const struct spw_attr *created)
{
	struct spw_attr attr;
	int rc = 0;

	pthread_mutex_lock(&inode->meta);
	if (created != NULL)
		attr = *created;
	else if (!inode->write_open)
		rc = ops.open_write(inode->ino, &attr);
	if (rc == 0 && !inode->write_open) {
		learn_locked(inode, &attr);
		inode->write_open = true;
		spw_fd_hold(inode);
	}
	if (rc == 0)
		inode->writers++;
	pthread_mutex_unlock(&inode->meta);
	return rc;
}

/* Seals a file without writers. On failure it stays open for writing, here and in the namespace:
 * its attributes keep coming from the data file and the next caller tries again. */
static void seal_locked(struct spw_inode *inode)
{
	uint_fast64_t writes = atomic_load(&inode->writes);
	struct spw_sealed data = { .writes = writes - inode->sealed };
	struct spw_attr attr;
	struct stat st;
	int fd, rc = 0;

	if (inode->orphan)
		return;
	if (data.writes > 0) {
		rc = fd_get(inode, 0, &fd);
		if (rc != 0)
			return;
		rc = sync_fd(inode, fd);
		if (rc == 0 && fstat(fd, &st) != 0)
			rc = errno;
		spw_fd_release(inode);
		if (rc != 0)
			return;
		data.size = (uint64_t)st.st_size;
		data.used = (uint64_t)st.st_blocks * 512;
		data.mtime_ns = st.st_mtim.tv_sec * 1000000000LL + st.st_mtim.tv_nsec;
	}
	rc = ops.seal(inode->ino, &data, &attr);
	if (rc == ESTALE) /* its last name and its row are gone */
		rc = 0;
	else if (rc == 0)
		learn_locked(inode, &attr);
	if (rc != 0)
		return;
	inode->sealed = writes;
	inode->write_open = false;
	spw_fd_release(inode);
}

void spw_writer_end(struct spw_inode *inode)
{
	pthread_mutex_lock(&inode->meta);
	if (--inode->writers == 0)
		seal_locked(inode);
	pthread_mutex_unlock(&inode->meta);
}

/* Begins a change of the bytes: a writer and its descriptor. */
static int change_begin(struct spw_inode *inode, int *fd)
{
	int rc = spw_writer_begin(inode, NULL);

	if (rc != 0)
		return rc;
	rc = fd_get(inode, O_CREAT, fd);
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
	rc = fd_get(inode, 0, &fd);
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
		rc = errno;
	} else {
		*amount = (size_t)put;
		atomic_fetch_add(&inode->writes, 1);
		if (stable)
			rc = sync_fd(inode, fd);
	}
	change_end(inode);
	return rc;
}

int spw_truncate(struct spw_inode *inode, uint64_t size)
{
	int fd, rc;

	rc = change_begin(inode, &fd);
	if (rc != 0)
		return rc;
	if (ftruncate(fd, (off_t)size) != 0) {
		rc = errno;
	} else {
		atomic_fetch_add(&inode->writes, 1);
		if (size == 0) /* none of the bytes that were lost is left */
			atomic_store(&inode->error, 0);
		rc = sync_fd(inode, fd);
	}
	change_end(inode);
	return rc;
}

int spw_seek(struct spw_inode *inode, uint64_t offset, int whence, uint64_t *found)
{
	off_t at;
	int fd, rc;

	rc = fd_get(inode, 0, &fd);
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
		rc = errno;
	} else {
		atomic_fetch_add(&inode->writes, 1);
		rc = sync_fd(inode, fd);
	}
	change_end(inode);
	return rc;
}

/* ---- attributes ---- */

void spw_touch(struct spw_inode *inode, int64_t mtime_ns)
{
	struct timespec times[2] = {
		{ .tv_nsec = UTIME_OMIT },
		{ .tv_sec = mtime_ns / 1000000000, .tv_nsec = mtime_ns % 1000000000 },
	};
	int fd;

	if (times[1].tv_nsec < 0) {
		times[1].tv_nsec += 1000000000;
		times[1].tv_sec--;
	}
	pthread_mutex_lock(&inode->meta);
	if (inode->write_open && fd_get(inode, 0, &fd) == 0) {
		if (futimens(fd, times) != 0)
			fprintf(stderr, "spillway: inode %llu: futimens: %s\n",
				(unsigned long long)inode->ino, strerror(errno));
		spw_fd_release(inode);
	}
	pthread_mutex_unlock(&inode->meta);
}

/* Lays what the data file says over the row of an inode that is being written. */
static void overlay_locked(struct spw_inode *inode, struct spw_attr *attr)
{
	uint_fast64_t writes = atomic_load(&inode->writes) - inode->sealed;
	struct stat st;
	int fd;

	if (writes == 0 || fd_get(inode, 0, &fd) != 0)
		return;
	if (fstat(fd, &st) == 0) {
		attr->size = (uint64_t)st.st_size;
		attr->used = (uint64_t)st.st_blocks * 512;
		attr->mtime_ns = st.st_mtim.tv_sec * 1000000000LL + st.st_mtim.tv_nsec;
		if (attr->ctime_ns < attr->mtime_ns)
			attr->ctime_ns = attr->mtime_ns;
		attr->change += writes;
	}
	spw_fd_release(inode);
}

int spw_getattr(struct spw_inode *inode, struct spw_attr *attr)
{
	int rc = 0;

	pthread_mutex_lock(&inode->meta);
	if (inode->write_open && inode->writers == 0)
		seal_locked(inode);
	if (inode->write_open && inode->attr_known) {
		*attr = inode->attr;
	} else {
		rc = ops.getattr(inode->ino, attr);
		if (rc == 0)
			learn_locked(inode, attr);
	}
	if (rc == 0 && inode->write_open)
		overlay_locked(inode, attr);
	pthread_mutex_unlock(&inode->meta);
	return rc;
}

void spw_attr_overlay(struct spw_attr *attr)
{
	struct spw_inode *inode;

	if (attr->kind != SPW_REGULAR)
		return;
	inode = inode_find(attr->ino);
	if (inode == NULL)
		return;
	pthread_mutex_lock(&inode->meta);
	/* The row may be older than a seal or a SETATTR that was answered since it was read. */
	if (inode->attr_known && inode->attr.change > attr->change)
		*attr = inode->attr;
	else
		learn_locked(inode, attr);
	if (inode->write_open)
		overlay_locked(inode, attr);
	pthread_mutex_unlock(&inode->meta);
	spw_inode_put(inode);
}
