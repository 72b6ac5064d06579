/* Reads and changes bytes: each call is a whole operation on a data file. */
#define _GNU_SOURCE
#include "bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bridge.h"
#include "damage.h"
#include "fd.h"
#include "space.h"
#include "sync.h"
#include "writer.h"

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
	/* The change is a writer until here: a seal in between would miss it. */
	spw_writer_end(inode);
}

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
	if (rc != 0) /* some bytes may not be those that were written */
		return rc;
	rc = spw_fd_get(inode, SPW_ABSENT_FAILS, &fd);
	if (rc == ENOENT) {
		/* A file that was never written has no data file. In any other case data is
		 * lost. */
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

/* Counts the bytes on the disk that the file's row does not have yet. The size would not tell them:
 * clients may send later bytes of a file before earlier ones. */
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

/* Counts a change that left the bytes as they were. It needs no sync. */
static void count_touched(struct spw_inode *inode)
{
	uint_fast64_t before = atomic_fetch_add(&inode->writes, 1);

	(void)atomic_compare_exchange_strong(&inode->synced, &before, before + 1);
}

/* Syncs a file that was emptied. It has no lost bytes any more, so it is whole once that is
 * durable. */
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
	/* If the row has bytes, a crash must neither bring them back nor make them count as
	 * lost. */
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
	if (rc != 0) /* the file is not empty, so a missing data file means lost bytes */
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
	/* A call that failed may have changed a part. */
	atomic_fetch_add(&inode->writes, 1);
	grow(inode, fd);
	if (rc == 0)
		rc = spw_sync_fd(inode, fd);
	change_end(inode);
	return rc;
}
