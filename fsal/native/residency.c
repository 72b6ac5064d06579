/* Evictions of files, and what the hydrator says of their bytes. */
#include "cold.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "bytes.h"

void spw_settle_locked(struct spw_inode *inode)
{
	struct spw_attr attr;

	inode->attr_known = false;
	(void)spw_attr_locked(inode, &attr);
}

bool spw_settle(struct spw_inode *inode)
{
	bool is_known;

	if (pthread_mutex_trylock(&inode->meta) != 0)
		return false;
	if (inode->leaving)
		spw_settle_locked(inode);
	is_known = !inode->leaving;
	pthread_mutex_unlock(&inode->meta);
	return is_known;
}

/* Calls the namespace. The data file of the old epoch must not be opened meanwhile. *epoch becomes
 * the old one. */
static int evict_locked(struct spw_inode *inode, uint64_t content_version, struct spw_attr *attr,
			uint64_t *epoch)
{
	struct stat st;
	int rc;

	/* The end of a refused eviction would make an epoch believed that is not known. */
	if (inode->leaving)
		spw_settle_locked(inode);
	if (inode->leaving)
		return EAGAIN;
	*epoch = inode->epoch;
	if (inode->write_open || !spw_fd_leave(inode)) /* a writer has it open for writing */
		return EBUSY;
	/* The last look: a database that is older than the disk does not know of newer bytes. */
	rc = spw_file_stat(inode, &st);
	if (rc == 0 || rc == ENOENT)
		rc = spw_namespace()->evict(inode->ino, content_version, rc == 0 ? &st : NULL,
					    attr);
	else
		rc = EBUSY; /* nothing was asked of the namespace */
	if (rc == 0)
		spw_place_locked(inode, attr);
	else if (rc == EIO) /* the namespace failed after the commit, or before */
		spw_settle_locked(inode);
	else
		spw_fd_stay(inode);
	return rc;
}

int spw_evict(struct spw_inode *inode, uint64_t content_version, struct spw_attr *attr)
{
	uint64_t epoch;
	int rc;

	pthread_mutex_lock(&inode->meta);
	rc = evict_locked(inode, content_version, attr, &epoch);
	pthread_mutex_unlock(&inode->meta);
	/* The row names another data file by now: a crash before this costs space until the next
	 * start. */
	if (rc == 0)
		spw_unlink(inode->ino, epoch);
	return rc;
}

/* Deletes a data file that the hydrator made for an epoch that is past. */
static void drop_old(struct spw_inode *inode, uint64_t epoch)
{
	bool is_old;

	pthread_mutex_lock(&inode->meta);
	is_old = epoch < inode->epoch;
	pthread_mutex_unlock(&inode->meta);
	if (is_old)
		spw_unlink(inode->ino, epoch);
}

int spw_arrived(struct spw_inode *inode, uint64_t epoch, uint64_t content_version,
		struct spw_attr *attr)
{
	int rc;

	pthread_mutex_lock(&inode->meta);
	rc = spw_namespace()->arrived(inode->ino, epoch, content_version, attr);
	/* After an error the file stays absent here. The hydrator asks again. */
	if (rc == 0)
		spw_place_locked(inode, attr);
	pthread_mutex_unlock(&inode->meta);
	if (rc == ESTALE)
		drop_old(inode, epoch);
	return rc;
}

/* Makes the record of an absent inode, if there is none. Returns 0, ENOENT if the inode is not
 * absent, or an errno. */
static int begin_locked(struct spw_inode *inode)
{
	struct spw_attr attr;
	int rc;

	if (!atomic_load(&inode->is_absent))
		return ENOENT;
	rc = spw_attr_locked(inode, &attr);
	if (rc != 0)
		return rc;
	/* Attributes of an answer that was on its way may have the epoch before. */
	attr.epoch = inode->epoch;
	attr.residency = SPW_ABSENT;
	return spw_cold_begin(inode, &attr);
}

static int begin(struct spw_inode *inode)
{
	int rc;

	pthread_mutex_lock(&inode->meta);
	rc = begin_locked(inode);
	pthread_mutex_unlock(&inode->meta);
	return rc;
}

int spw_present(struct spw_inode *inode, uint64_t epoch, uint64_t offset, uint64_t length)
{
	int rc = spw_cold_present(inode, epoch, offset, length);

	if (rc == ENOENT && (rc = begin(inode)) == 0)
		rc = spw_cold_present(inode, epoch, offset, length);
	if (rc == ENOENT)
		rc = ESTALE;
	if (rc == ESTALE)
		drop_old(inode, epoch);
	return rc;
}

int spw_failed(struct spw_inode *inode, uint64_t epoch, bool is_all)
{
	int rc = begin(inode);

	if (rc == 0)
		rc = spw_cold_failed(inode, epoch, is_all);
	return rc == ENOENT ? ESTALE : rc;
}

int spw_want(struct spw_inode *inode, uint64_t offset, uint64_t length, uint64_t *size)
{
	int rc = spw_cold_want(inode, offset, length, size);

	if (rc == ENOENT && (rc = begin(inode)) == 0)
		rc = spw_cold_want(inode, offset, length, size);
	return rc;
}

int spw_want_all_locked(struct spw_inode *inode)
{
	int rc = begin_locked(inode);
	uint64_t size;

	if (rc == 0)
		rc = spw_cold_want(inode, 0, UINT64_MAX, &size);
	if (rc == 0)
		spw_cold_confirm(inode);
	return rc == 0 || rc == EINPROGRESS || rc == ENOENT ? EAGAIN : rc;
}

int spw_want_all(struct spw_inode *inode)
{
	int rc;

	pthread_mutex_lock(&inode->meta);
	rc = spw_want_all_locked(inode);
	pthread_mutex_unlock(&inode->meta);
	return rc;
}
