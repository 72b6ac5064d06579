#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files.h"

#define BUCKETS 1024u

static struct {
	pthread_mutex_t lock;
	struct spw_inode *first;
} table[BUCKETS];

static struct spw_inode_ops ops;

void spw_inodes_start(const struct spw_inode_ops *namespace_ops)
{
	ops = *namespace_ops;
	for (unsigned int i = 0; i < BUCKETS; i++)
		pthread_mutex_init(&table[i].lock, NULL);
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
		rc = spw_fd_get(inode, 0, &fd);
		if (rc != 0)
			return;
		rc = spw_sync_fd(inode, fd);
		if (rc == 0 && fstat(fd, &st) != 0)
			rc = errno;
		spw_fd_release(inode);
		if (rc != 0)
			return;
		data.size = (uint64_t)st.st_size;
		data.used = (uint64_t)st.st_blocks * 512;
		data.mtime_ns = spw_ns(&st.st_mtim);
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
	if (inode->write_open && spw_fd_get(inode, 0, &fd) == 0) {
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

	if (writes == 0 || spw_fd_get(inode, 0, &fd) != 0)
		return;
	if (fstat(fd, &st) == 0) {
		attr->size = (uint64_t)st.st_size;
		attr->used = (uint64_t)st.st_blocks * 512;
		attr->mtime_ns = spw_ns(&st.st_mtim);
		/* The data file's own: clients set mtime, also into the future, never ctime. */
		if (attr->ctime_ns < spw_ns(&st.st_ctim))
			attr->ctime_ns = spw_ns(&st.st_ctim);
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

bool spw_is_privileged(struct spw_inode *inode)
{
	const uint32_t sgid = S_ISGID | S_IXGRP;
	uint32_t mode;

	pthread_mutex_lock(&inode->meta);
	mode = inode->attr_known ? inode->attr.mode : 0;
	pthread_mutex_unlock(&inode->meta);
	return (mode & S_ISUID) || (mode & sgid) == sgid;
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
