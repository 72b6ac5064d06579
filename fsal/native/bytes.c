/* Reads and changes of bytes: each call is a whole operation on a data file. */
#define _GNU_SOURCE
#include "bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cold.h"
#include "seal.h"
#include "space.h"

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
	bool is_emptied = absent == SPW_ABSENT_IS_EMPTY;
	int rc = is_emptied ? 0 : atomic_load(&inode->error);

	if (rc == 0)
		rc = is_emptied ? spw_writer_begin_emptied(inode) : spw_writer_begin(inode, NULL);
	if (rc != 0)
		return rc;
	rc = is_emptied ? 0 : atomic_load(&inode->error); /* the writer may have found bytes lost */
	if (rc == 0)
		rc = spw_fd_get(inode, absent, fd);
	if (rc != 0)
		spw_writer_end(inode);
	return spw_is_lost(rc) ? EIO : rc;
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

static int size_of_fd(int fd, uint64_t *size)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return errno;
	*size = (uint64_t)st.st_size;
	return 0;
}

/* Reads on after a short read, until the end of the file. *got: the bytes so far. Returns 0 or an
 * errno. */
static int read_on(int fd, const struct iovec *iov, int count, uint64_t offset, size_t *got)
{
	size_t before = 0;

	for (int i = 0; i < count; before += iov[i++].iov_len) {
		while (*got < before + iov[i].iov_len) {
			size_t at = *got - before;
			ssize_t more = pread(fd, (char *)iov[i].iov_base + at, iov[i].iov_len - at,
					     (off_t)(offset + *got));

			if (more <= 0)
				return more < 0 ? errno : 0;
			*got += (size_t)more;
		}
	}
	return 0;
}

/* Reads bytes, fewer only at the end of the data file. The kernel answers a read that meets a bad
 * sector with the bytes before it, as it answers one that meets the end of the file: only another
 * read tells the error. Returns 0 or an errno. */
static int read_fd(int fd, const struct iovec *iov, int count, uint64_t offset, size_t *got,
		   uint64_t *size)
{
	size_t wanted = sum(iov, count);
	ssize_t first = preadv(fd, iov, count, (off_t)offset);
	int rc;

	*got = first > 0 ? (size_t)first : 0;
	if (first < 0)
		return errno;
	rc = size_of_fd(fd, size);
	if (rc != 0 || *got == wanted || offset + *got >= *size)
		return rc;
	rc = read_on(fd, iov, count, offset, got);
	if (rc == 0)
		rc = size_of_fd(fd, size); /* another client may have cut the file */
	return rc == 0 && *got < wanted && offset + *got < *size ? EIO : rc;
}

/* One try to read. */
struct reading {
	const struct iovec *iov;
	int count;
	uint64_t offset;
	size_t *amount;
	bool *eof;
};

/* Judges the error of a system call on the data file. Returns an errno. */
static int judge(struct spw_inode *inode, const struct spw_reader *reader, int error)
{
	return spw_is_lost(error) ? spw_unreadable(inode, reader->epoch, error) : error;
}

static int read_resident(struct spw_inode *inode, const struct spw_reader *reader,
			 const struct reading *reading)
{
	uint64_t size, least = atomic_load(&inode->least_bytes);
	int rc;

	if (reader->fd < 0) /* a file that was never written has no data file */
		return spw_too_short(inode, reader->epoch);
	rc = read_fd(reader->fd, reading->iov, reading->count, reading->offset,
			 reading->amount, &size);

	if (rc != 0)
		return judge(inode, reader, rc);
	*reading->eof = reading->offset + *reading->amount >= size;
	return size < least ? spw_too_short(inode, reader->epoch) : 0;
}

/* The data file of an absent file may be shorter than the file, or missing: it is the row that says
 * where the file ends. */
static int read_absent(struct spw_inode *inode, const struct spw_reader *reader,
		       const struct reading *reading)
{
	uint64_t size, found, left, wanted = sum(reading->iov, reading->count);
	int rc = spw_want(inode, reading->offset, wanted, &size);

	if (rc != 0 || reading->offset >= size)
		return rc;
	left = size - reading->offset;
	if (reader->fd >= 0)
		rc = read_fd(reader->fd, reading->iov, reading->count, reading->offset,
			     reading->amount, &found);
	if (rc != 0)
		return judge(inode, reader, rc);
	if (*reading->amount < wanted && *reading->amount < left) {
		rc = spw_too_short(inode, reader->epoch);
		return rc == 0 ? ENOENT : rc; /* it was made, or emptied, meanwhile */
	}
	if (*reading->amount > left)
		*reading->amount = (size_t)left;
	*reading->eof = *reading->amount == left;
	return 0;
}

/* Gives a descriptor to read with. After an eviction without an answer perhaps only readers come,
 * so a reader asks for the epoch too. */
static int get_to_read(struct spw_inode *inode, struct spw_reader *reader)
{
	int rc = spw_fd_get_to_read(inode, reader);

	if (rc == EAGAIN && spw_settle(inode))
		rc = spw_fd_get_to_read(inode, reader);
	return rc;
}

/* Reads from the data file of one epoch. Sets *again if the next try may have another result. Returns
 * an errno. */
static int read_epoch(struct spw_inode *inode, const struct reading *reading, bool *again)
{
	struct spw_reader reader;
	int rc = get_to_read(inode, &reader);
	bool has_fd = rc == 0, is_current;

	*reading->amount = 0;
	*reading->eof = true;
	if (!has_fd)
		reader.fd = -1;
	if (has_fd || rc == ENOENT)
		rc = reader.is_absent ? read_absent(inode, &reader, reading)
				      : read_resident(inode, &reader, reading);
	else
		rc = judge(inode, &reader, rc);
	is_current = spw_fd_is_current(inode, &reader);
	if (has_fd)
		spw_fd_release(inode);
	*again = rc == ENOENT || (!is_current && (rc == 0 || rc == EAGAIN));
	/* What was read may be of another data file, in which the bytes of this one are holes. */
	return *again ? EAGAIN : rc;
}

#define READ_TRIES 4

int spw_read(struct spw_inode *inode, const struct iovec *iov, int count, uint64_t offset,
	     size_t *amount, bool *eof)
{
	const struct reading reading = { iov, count, offset, amount, eof };
	bool again = true;
	int rc = atomic_load(&inode->error);

	*amount = 0;
	*eof = true;
	if (rc != 0) /* some bytes may not be those that were written */
		return rc;
	for (int i = 0; again && i < READ_TRIES; i++)
		rc = read_epoch(inode, &reading, &again);
	if (rc == 0)
		spw_reads_note(inode);
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
	rc = change_begin(inode, absent, &fd);
	if (rc != 0)
		return rc;
	rc = truncate_fd(inode, fd, size);
	change_end(inode);
	return rc;
}

/* Seeks in the data file of one epoch. */
static int seek_epoch(struct spw_inode *inode, const struct spw_reader *reader, uint64_t offset,
		      int whence, uint64_t *found)
{
	uint64_t least = atomic_load(&inode->least_bytes);
	off_t at = lseek(reader->fd, (off_t)offset, whence);
	int seek_rc = at < 0 ? errno : 0, rc;
	uint64_t size;

	*found = (uint64_t)at;
	if (spw_is_lost(seek_rc))
		return judge(inode, reader, seek_rc);
	/* Bytes that the data file lacks would be told to be a hole. */
	rc = size_of_fd(reader->fd, &size);
	if (rc == 0 && size < least)
		rc = spw_too_short(inode, reader->epoch);
	if (rc == 0 && !spw_fd_is_current(inode, reader))
		rc = EAGAIN;
	return rc != 0 ? rc : seek_rc;
}

int spw_seek(struct spw_inode *inode, uint64_t offset, int whence, uint64_t *found)
{
	struct spw_reader reader;
	int rc = atomic_load(&inode->error);

	if (rc != 0)
		return rc;
	rc = get_to_read(inode, &reader);
	/* The holes of an absent file are those of what has not arrived. */
	if (reader.is_absent) {
		if (rc == 0)
			spw_fd_release(inode);
		return rc == 0 || rc == ENOENT ? spw_want_all(inode) : rc;
	}
	if (rc == ENOENT) { /* the file is not empty, so a missing data file means lost bytes */
		rc = spw_too_short(inode, reader.epoch);
		return rc == 0 ? EIO : rc;
	}
	if (rc != 0)
		return judge(inode, &reader, rc);
	rc = seek_epoch(inode, &reader, offset, whence, found);
	spw_fd_release(inode);
	return rc;
}

int spw_allocate(struct spw_inode *inode, uint64_t offset, uint64_t length, bool allocate)
{
	int mode = allocate ? 0 : FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE;
	int fd, rc = change_begin(inode, SPW_ABSENT_IF_NEW, &fd);

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
