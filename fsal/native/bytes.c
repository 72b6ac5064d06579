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
#include "reads.h"
#include "residency.h"
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
	int rc = absent == SPW_ABSENT_IS_EMPTY ? spw_writer_begin_emptied(inode)
					       : spw_writer_begin(inode, NULL);

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

static size_t sum(const struct iovec *iov, int count)
{
	size_t bytes = 0;

	for (int i = 0; i < count; i++)
		bytes += iov[i].iov_len;
	return bytes;
}

static int read_resident(struct spw_inode *inode, int fd, const struct iovec *iov, int count,
			 uint64_t offset, size_t *amount, bool *eof)
{
	struct spw_attr attr;
	struct stat st;
	ssize_t got;
	int rc;

	if (fd < 0) { /* a file that was never written has no data file */
		rc = spw_getattr(inode, &attr);
		return rc != 0 ? rc : attr.size == 0 ? 0 : ENOENT;
	}
	got = preadv(fd, iov, count, (off_t)offset);
	if (got < 0)
		return errno;
	*amount = (size_t)got;
	if ((size_t)got == sum(iov, count) && fstat(fd, &st) == 0)
		*eof = offset + (uint64_t)got >= (uint64_t)st.st_size;
	return 0;
}

/* The data file of an absent file may be shorter than the file, or missing: it is the row that says
 * where the file ends. */
static int read_absent(struct spw_inode *inode, int fd, const struct iovec *iov, int count,
		       uint64_t offset, size_t *amount, bool *eof)
{
	uint64_t size, left, wanted = sum(iov, count);
	ssize_t got;
	int rc = spw_want(inode, offset, wanted, &size);

	if (rc != 0 || offset >= size)
		return rc;
	if (fd < 0) /* the hydrator has made it meanwhile */
		return ENOENT;
	left = size - offset;
	got = preadv(fd, iov, count, (off_t)offset);
	if (got < 0)
		return errno;
	if ((uint64_t)got < wanted && (uint64_t)got < left) /* it may have been emptied meanwhile */
		return atomic_load(&inode->is_absent) ? EIO : EAGAIN;
	*amount = (uint64_t)got < left ? (size_t)got : (size_t)left;
	*eof = *amount == left;
	return 0;
}

/* Gives a descriptor to read with. After an eviction without an answer perhaps only readers come,
 * so a reader asks for the epoch too. */
static int get_to_read(struct spw_inode *inode, int *fd, bool *is_absent)
{
	int rc = spw_fd_get_to_read(inode, fd, is_absent);

	if (rc == EAGAIN && spw_settle(inode))
		rc = spw_fd_get_to_read(inode, fd, is_absent);
	return rc;
}

/* A data file that is missing may have been made since: by the hydrator, or under a new epoch. */
#define READ_TRIES 4

int spw_read(struct spw_inode *inode, const struct iovec *iov, int count, uint64_t offset,
	     size_t *amount, bool *eof)
{
	int fd, rc = atomic_load(&inode->error);

	*amount = 0;
	*eof = true;
	if (rc != 0) /* some bytes may not be those that were written */
		return rc;
	rc = ENOENT;
	for (int i = 0; rc == ENOENT && i < READ_TRIES; i++) {
		bool has_fd, is_absent;

		/* While the descriptor is in use, the file is not evicted. */
		rc = get_to_read(inode, &fd, &is_absent);
		has_fd = rc == 0;
		if (rc != 0 && rc != ENOENT)
			return rc;
		if (is_absent)
			rc = read_absent(inode, has_fd ? fd : -1, iov, count, offset, amount, eof);
		else
			rc = read_resident(inode, has_fd ? fd : -1, iov, count, offset, amount, eof);
		if (has_fd)
			spw_fd_release(inode);
	}
	if (rc == 0)
		spw_reads_note(inode);
	return rc == ENOENT ? EIO : rc; /* bytes are lost */
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
	bool is_absent;
	off_t at;
	int fd, rc;

	rc = get_to_read(inode, &fd, &is_absent);
	/* The holes of an absent file are those of what has not arrived. */
	if (is_absent) {
		if (rc == 0)
			spw_fd_release(inode);
		return rc == 0 || rc == ENOENT ? spw_want_all(inode) : rc;
	}
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
