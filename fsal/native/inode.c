/* Table of inode objects, and the attributes that clients get. */
#include "inode.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bytes.h"
#include "cold.h"
#include "seal.h"
#include "space.h"
#include "util.h"

/* Ganesha keeps 100,000 handles (Entries_HWMark in gateway/nfs/ganesha_conf.py): with 4,096 buckets
 * a search among so many inodes took 5 µs, with these it takes 1 µs. They take 3.5 MiB. */
#define BUCKETS 65536u

static struct bucket {
	pthread_mutex_t lock;
	struct spw_inode *first;
	uint64_t changed; /* when an inode without an object changed, or an object was freed */
} table[BUCKETS];

static atomic_uint_fast64_t now = 1; /* counts what `changed` and `born` are compared by */

void spw_inodes_start(void)
{
	for (unsigned int i = 0; i < BUCKETS; i++)
		pthread_mutex_init(&table[i].lock, NULL);
}

uint64_t spw_asked(void)
{
	return atomic_load(&now);
}

/* ---- the table of inodes ---- */

static struct bucket *bucket_of(uint64_t ino)
{
	return &table[ino % BUCKETS];
}

static bool is_absent(const struct spw_attr *attr)
{
	return attr->kind == SPW_REGULAR && attr->residency == SPW_ABSENT;
}

static struct spw_inode *inode_new(const struct spw_attr *attr, uint64_t born)
{
	struct spw_inode *inode = calloc(1, sizeof(*inode));

	if (inode == NULL)
		abort(); /* as Ganesha's own allocator does */
	inode->ino = attr->ino;
	inode->generation = attr->generation;
	inode->epoch = attr->epoch;
	inode->born = born;
	inode->fd = -1;
	atomic_store(&inode->least_bytes, UINT64_MAX);
	atomic_store(&inode->is_absent, is_absent(attr));
	spw_damage_recall(inode);
	pthread_mutex_init(&inode->fd_lock, NULL);
	pthread_mutex_init(&inode->meta, NULL);
	pthread_mutex_init(&inode->sync_lock, NULL);
	pthread_cond_init(&inode->sync_done, NULL);
	return inode;
}

static void inode_free(struct spw_inode *inode)
{
	spw_space_sealed(atomic_load(&inode->grown), false);
	if (inode->cold != NULL)
		spw_cold_forget(inode, EAGAIN);
	if (inode->fd >= 0)
		close(inode->fd);
	pthread_mutex_destroy(&inode->fd_lock);
	pthread_mutex_destroy(&inode->meta);
	pthread_mutex_destroy(&inode->sync_lock);
	pthread_cond_destroy(&inode->sync_done);
	free(inode);
}

static struct spw_inode *find_locked(const struct bucket *bucket, uint64_t ino)
{
	struct spw_inode *inode = bucket->first;

	while (inode != NULL && inode->ino != ino)
		inode = inode->next;
	return inode;
}

static struct spw_inode *hold_locked(const struct bucket *bucket, uint64_t ino)
{
	struct spw_inode *inode = find_locked(bucket, ino);

	if (inode != NULL)
		inode->handles++;
	return inode;
}

/* Returns an existing inode object with one more handle, or NULL. For NULL its bucket remembers
 * that something happened, because an answer that is on its way may be older. */
static struct spw_inode *find_changed(uint64_t ino)
{
	struct bucket *bucket = bucket_of(ino);
	struct spw_inode *inode;

	pthread_mutex_lock(&bucket->lock);
	inode = hold_locked(bucket, ino);
	if (inode == NULL)
		bucket->changed = atomic_fetch_add(&now, 1) + 1;
	pthread_mutex_unlock(&bucket->lock);
	return inode;
}

void spw_inode_hold(struct spw_inode *inode)
{
	pthread_mutex_t *lock = &bucket_of(inode->ino)->lock;

	pthread_mutex_lock(lock);
	inode->handles++;
	pthread_mutex_unlock(lock);
}

struct spw_inode *spw_inode_get(const struct spw_attr *attr, uint64_t asked)
{
	struct bucket *bucket = bucket_of(attr->ino);
	struct spw_inode *inode;
	struct spw_attr known;

	pthread_mutex_lock(&bucket->lock);
	inode = find_locked(bucket, attr->ino);
	if (inode == NULL) {
		inode = inode_new(attr, bucket->changed);
		/* The answer may be older than an eviction. */
		inode->leaving = attr->kind == SPW_REGULAR && asked < inode->born;
		inode->next = bucket->first;
		bucket->first = inode;
	}
	inode->handles++;
	pthread_mutex_unlock(&bucket->lock);

	pthread_mutex_lock(&inode->meta);
	if (asked >= inode->born)
		spw_learn_locked(inode, attr);
	if (inode->leaving)
		(void)spw_attr_locked(inode, &known);
	pthread_mutex_unlock(&inode->meta);
	return inode;
}

struct spw_inode *spw_inode_find(uint64_t ino)
{
	struct bucket *bucket = bucket_of(ino);
	struct spw_inode *inode;

	pthread_mutex_lock(&bucket->lock);
	inode = hold_locked(bucket, ino);
	pthread_mutex_unlock(&bucket->lock);
	return inode;
}

bool spw_inode_known(uint64_t ino, struct spw_attr *attr)
{
	struct spw_inode *inode = spw_inode_find(ino);
	bool known;

	if (inode == NULL)
		return false;
	pthread_mutex_lock(&inode->meta);
	known = inode->attr_known;
	if (known)
		*attr = inode->attr;
	pthread_mutex_unlock(&inode->meta);
	spw_inode_put(inode);
	return known;
}

uint64_t spw_inode_generation(uint64_t ino)
{
	struct bucket *bucket = bucket_of(ino);
	const struct spw_inode *inode;
	uint64_t generation;

	pthread_mutex_lock(&bucket->lock);
	inode = find_locked(bucket, ino);
	generation = inode != NULL ? inode->generation : 0;
	pthread_mutex_unlock(&bucket->lock);
	return generation;
}

void spw_inode_put(struct spw_inode *inode)
{
	struct bucket *bucket = bucket_of(inode->ino);
	struct spw_inode **link = &bucket->first;
	bool last;

	pthread_mutex_lock(&bucket->lock);
	/* An object that cannot be sealed stays: only it knows the size, and what was lost. */
	last = --inode->handles == 0 && (!inode->write_open || inode->orphan);
	if (last) {
		while (*link != inode)
			link = &(*link)->next;
		*link = inode->next;
		bucket->changed = atomic_fetch_add(&now, 1) + 1;
	}
	pthread_mutex_unlock(&bucket->lock);
	if (!last)
		return;
	if (inode->gone)
		spw_unlink(inode->ino, inode->epoch);
	else if (inode->orphan)
		spw_queue_orphan(inode->ino, inode->epoch);
	inode_free(inode);
}

void spw_reclaimed(uint64_t ino, uint64_t epoch)
{
	struct spw_inode *inode = find_changed(ino);

	if (inode == NULL) {
		spw_unlink(ino, epoch);
		return;
	}
	/* The call that made the inode had no answer yet when the inode lost its name. */
	pthread_mutex_lock(&inode->meta);
	inode->orphan = inode->gone = true;
	pthread_mutex_unlock(&inode->meta);
	spw_inode_put(inode);
}

void spw_removed(const struct spw_removed *removed)
{
	struct spw_inode *inode;
	bool orphan = removed->nlink == 0 && removed->kind == SPW_REGULAR;

	if (removed->ino == 0)
		return;
	inode = find_changed(removed->ino);
	if (inode == NULL) {
		if (orphan)
			spw_queue_orphan(removed->ino, removed->epoch);
		return;
	}
	pthread_mutex_lock(&inode->meta);
	if (removed->change > inode->change_seen) {
		inode->change_seen = removed->change;
		inode->attr_known = false;
	}
	if (orphan)
		inode->orphan = true;
	pthread_mutex_unlock(&inode->meta);
	spw_inode_put(inode);
}

/* ---- attributes ---- */

void spw_learn_locked(struct spw_inode *inode, const struct spw_attr *attr)
{
	/* Answers can overtake each other; change only grows. */
	if (attr->change < inode->change_seen)
		return;
	inode->attr = *attr;
	inode->attr_known = true;
	inode->change_seen = attr->change;
	spw_expect_bytes_locked(inode);
}

void spw_expect_bytes_locked(struct spw_inode *inode)
{
	uint64_t least = inode->attr_known ? inode->attr.size : UINT64_MAX;

	atomic_store(&inode->least_bytes, inode->write_open ? 0 : least);
}

void spw_changed(const struct spw_attr *attr)
{
	struct spw_inode *inode;

	if (attr->ino == 0)
		return;
	inode = find_changed(attr->ino);
	if (inode == NULL)
		return;
	pthread_mutex_lock(&inode->meta);
	spw_learn_locked(inode, attr);
	pthread_mutex_unlock(&inode->meta);
	spw_inode_put(inode);
}

void spw_inode_invalidate(uint64_t ino)
{
	struct spw_inode *inode = find_changed(ino);

	if (inode == NULL)
		return;
	pthread_mutex_lock(&inode->meta);
	inode->attr_known = false;
	pthread_mutex_unlock(&inode->meta);
	spw_inode_put(inode);
}

/* Replaces attributes of an inode that is being written by those of its data file. Returns 0 or an
 * errno: a client that gets the size of the row would append over bytes that were acknowledged. */
static int overlay_locked(struct spw_inode *inode, struct spw_attr *attr)
{
	uint_fast64_t writes = atomic_load(&inode->writes) - inode->sealed;
	struct stat st;
	int fd, rc;

	if (!inode->write_open || writes == 0)
		return 0;
	rc = spw_fd_get(inode, SPW_ABSENT_FAILS, &fd);
	if (rc != 0)
		return rc == ENOENT ? EIO : rc; /* ENOENT: the bytes are lost */
	if (fstat(fd, &st) == 0) {
		attr->size = (uint64_t)st.st_size;
		attr->used = (uint64_t)st.st_blocks * 512;
		attr->mtime_ns = spw_ns(&st.st_mtim);
		/* ctime is the data file's own: clients set mtime, also into the future, never
		 * ctime. */
		if (attr->ctime_ns < spw_ns(&st.st_ctim))
			attr->ctime_ns = spw_ns(&st.st_ctim);
		attr->change += writes;
	} else {
		rc = errno;
	}
	spw_fd_release(inode);
	return rc;
}

void spw_place_locked(struct spw_inode *inode, const struct spw_attr *attr)
{
	bool absent = is_absent(attr), is_moved;

	pthread_mutex_lock(&inode->fd_lock);
	is_moved = inode->epoch != attr->epoch || atomic_load(&inode->is_absent) != absent;
	inode->epoch = attr->epoch;
	atomic_store(&inode->is_absent, absent);
	inode->leaving = false;
	pthread_mutex_unlock(&inode->fd_lock);
	if (is_moved)
		spw_cold_forget(inode, absent ? EAGAIN : 0);
}

int spw_attr_locked(struct spw_inode *inode, struct spw_attr *attr)
{
	int rc = 0;

	if (inode->attr_known && !inode->leaving) {
		*attr = inode->attr;
		return 0;
	}
	rc = spw_namespace()->getattr(inode->ino, attr);
	if (rc != 0)
		return rc;
	spw_learn_locked(inode, attr);
	if (inode->leaving)
		spw_place_locked(inode, attr);
	return 0;
}

int spw_getattr(struct spw_inode *inode, struct spw_attr *attr)
{
	int rc;

	pthread_mutex_lock(&inode->meta);
	rc = spw_attr_locked(inode, attr);
	if (rc == 0)
		rc = overlay_locked(inode, attr);
	pthread_mutex_unlock(&inode->meta);
	return rc;
}

bool spw_may_be_privileged(struct spw_inode *inode)
{
	const uint32_t sgid = S_ISGID | S_IXGRP;
	bool may_be;

	pthread_mutex_lock(&inode->meta);
	may_be = !inode->attr_known || (inode->attr.mode & S_ISUID) ||
		 (inode->attr.mode & sgid) == sgid;
	pthread_mutex_unlock(&inode->meta);
	return may_be;
}

bool spw_is_nameless(struct spw_inode *inode)
{
	bool is_nameless;

	pthread_mutex_lock(&inode->meta);
	is_nameless = inode->orphan || (inode->attr_known && inode->attr.nlink == 0);
	pthread_mutex_unlock(&inode->meta);
	return is_nameless;
}
