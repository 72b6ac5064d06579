/* Count of a file's writers: the first one moves the version, the last one leaves the file to the
 * sealer.
 */
#include "seal.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "bytes.h"
#include "cold.h"
#include "util.h"

/* Gives the data file, if there is one, an mtime. After a crash and at a seal only the file tells
 * the mtime: it must be the one that clients saw. */
static int carry_mtime(struct spw_inode *inode, int64_t mtime_ns)
{
	struct timespec times[2] = {
		{ .tv_nsec = UTIME_OMIT },
		{ .tv_sec = mtime_ns / 1000000000, .tv_nsec = mtime_ns % 1000000000 },
	};
	struct stat st;
	int fd, rc;

	if (times[1].tv_nsec < 0) {
		times[1].tv_nsec += 1000000000;
		times[1].tv_sec--;
	}
	rc = spw_fd_get(inode, SPW_ABSENT_FAILS, &fd);
	if (rc != 0)
		return rc == ENOENT ? 0 : rc; /* ENOENT: the file was never written */
	if (fstat(fd, &st) != 0)
		rc = errno;
	else if (spw_ns(&st.st_mtim) != mtime_ns)
		rc = futimens(fd, times) != 0 ? errno : spw_sync_times(inode, fd);
	spw_fd_release(inode);
	return rc;
}

/* Returns whether a new file is still as the namespace made it. If another client has opened,
 * written and closed it since, it is sealed, its version may be in the bucket, and the data file is
 * that client's. */
static bool is_untouched_locked(const struct spw_inode *inode, const struct spw_attr *created)
{
	return created != NULL && !inode->write_open && inode->attr_known &&
	       inode->change_seen == created->change;
}

/* Looks whether the data file has the bytes of the row: as soon as the file is open for writing, the
 * data file is the truth, and what it lacks would be sealed as cut off. A file whose bytes are lost
 * may be opened, because it is emptied in this way, but not be written before. */
static int require_bytes_locked(struct spw_inode *inode, bool is_emptied)
{
	int rc = spw_too_short_locked(inode);

	if (rc == EIO && (is_emptied || atomic_load(&inode->error) != 0))
		return 0;
	return rc == EAGAIN && atomic_load(&inode->is_absent) ? 0 : rc;
}

/* Opens the inode for writing in the namespace. The version moves, and from here on fstat is the
 * truth. An mtime that a client set since the seal is only in the row, so the data file gets it. An
 * absent file has no data file that counts: only a writer that empties it needs none. */
static int open_locked(struct spw_inode *inode, bool is_emptied, struct spw_attr *attr)
{
	int rc = spw_attr_locked(inode, attr);

	if (rc == 0 && !atomic_load(&inode->is_absent))
		rc = require_bytes_locked(inode, is_emptied);
	if (rc == 0 && !atomic_load(&inode->is_absent))
		rc = carry_mtime(inode, attr->mtime_ns);
	else if (rc == 0 && !is_emptied)
		rc = spw_want_all_locked(inode);
	if (rc == 0)
		rc = spw_namespace()->open_write(inode->ino, is_emptied ? SPW_EMPTIED : 0, attr);
	return rc;
}

static void begin_locked(struct spw_inode *inode, const struct spw_attr *attr)
{
	spw_learn_locked(inode, attr);
	spw_place_locked(inode, attr);
	inode->write_open = true;
	spw_expect_bytes_locked(inode);
	inode->row_size = attr->size;
	inode->row_used = attr->used;
	/* Bytes that the row has and the disk does not have are lost. An empty file in their place
	 * would be sealed, and would replace the object in the bucket. */
	spw_fd_expect(inode, attr->size == 0);
}

static int begin(struct spw_inode *inode, const struct spw_attr *created, bool is_emptied)
{
	struct spw_attr attr;
	uint64_t epoch;
	bool is_moved;
	int rc = 0;

	pthread_mutex_lock(&inode->meta);
	epoch = inode->epoch;
	if (!inode->write_open) {
		if (is_untouched_locked(inode, created)) {
			attr = *created;
			rc = spw_expect_no_file(inode);
		} else {
			rc = open_locked(inode, is_emptied, &attr);
		}
		if (rc == 0)
			begin_locked(inode, &attr);
	}
	if (rc == 0 && !inode->fd_kept) {
		spw_fd_hold(inode);
		inode->fd_kept = true;
	}
	if (rc == 0)
		inode->writers++;
	is_moved = rc == 0 && inode->epoch != epoch;
	pthread_mutex_unlock(&inode->meta);
	if (is_moved) /* the file was absent: its row has no bytes of the old epoch any more */
		spw_unlink(inode->ino, epoch);
	return rc;
}

int spw_writer_begin(struct spw_inode *inode, const struct spw_attr *created)
{
	return begin(inode, created, false);
}

int spw_writer_begin_emptied(struct spw_inode *inode)
{
	return begin(inode, NULL, true);
}

int spw_made_closed(struct spw_inode *inode, const struct spw_attr *created)
{
	int rc = 0;

	pthread_mutex_lock(&inode->meta);
	if (is_untouched_locked(inode, created))
		rc = spw_expect_no_file(inode);
	pthread_mutex_unlock(&inode->meta);
	return rc;
}

void spw_writer_end(struct spw_inode *inode)
{
	bool last;

	pthread_mutex_lock(&inode->meta);
	last = --inode->writers == 0;
	pthread_mutex_unlock(&inode->meta);
	if (!last)
		return;
	/* Until the seal only this object knows the file's size, so the queue has a handle on
	 * it. */
	spw_inode_hold(inode);
	if (!spw_queue_add(inode))
		spw_inode_put(inode);
}

bool spw_keep_open(struct spw_inode *inode)
{
	bool is_open;

	pthread_mutex_lock(&inode->meta);
	is_open = inode->write_open;
	if (is_open)
		inode->writers++;
	pthread_mutex_unlock(&inode->meta);
	return is_open;
}

int spw_touch(struct spw_inode *inode, int64_t mtime_ns)
{
	bool is_open;

	pthread_mutex_lock(&inode->meta);
	is_open = inode->write_open;
	pthread_mutex_unlock(&inode->meta);
	/* The call is without the lock: its sync writes all bytes of the file to the disk. */
	return is_open ? carry_mtime(inode, mtime_ns) : 0;
}
