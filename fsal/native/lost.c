/* Verdicts on data files that lack bytes, or that cannot be read. */
#include "bytes.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cold.h"
#include "util.h"

#ifndef SPW_LOST_AGAIN_MS
#define SPW_LOST_AGAIN_MS 60000u /* a failing disk must not fetch a file again and again */
#endif
#define REASON_BYTES 128

bool spw_is_lost(int error)
{
	switch (error) {
	case EIO:
	case EBADMSG: /* a checksum of the file system */
	case EILSEQ:  /* integrity data of the device */
	case ENODATA: /* a medium error */
	case EREMOTEIO:
	case EUCLEAN: /* metadata of the file system */
		return true;
	default:
		return false;
	}
}

static void tell(const struct spw_inode *inode, const char *reason, const char *what)
{
	fprintf(stderr, "spillway: inode %" PRIu64 ": %s: %s\n", inode->ino, reason, what);
}

/* Says what each READ of a client may meet, at most once a second. */
static void tell_again(const struct spw_inode *inode, const char *reason, const char *what)
{
	static atomic_uint_fast64_t next_ms;
	uint64_t now = spw_clock_ms(), next = atomic_load(&next_ms);

	if (now >= next && atomic_compare_exchange_strong(&next_ms, &next, now + 1000))
		tell(inode, reason, what);
}

/* Gives up the data file, if the bucket has the file, or records the damage. attr: of the file
 * afterwards; ino 0: neither was done. Returns EAGAIN if the file is absent now, EIO, or another
 * errno. */
static int give_up_locked(struct spw_inode *inode, const struct spw_loss *loss, struct spw_attr *attr)
{
	uint64_t now = spw_clock_ms(), epoch = inode->epoch;
	const char *reason = loss->reason;
	int rc;

	attr->ino = 0;
	if (!loss->is_not_stored && inode->lost_ms != 0 &&
	    now < inode->lost_ms + SPW_LOST_AGAIN_MS) {
		tell_again(inode, reason, "it was fetched again a moment ago: check the disk");
		return EIO;
	}
	rc = spw_namespace()->lost(inode->ino, loss, attr);
	if (rc != 0)
		attr->ino = 0;
	if (rc == EIO) { /* the namespace failed after the commit, or before */
		spw_fd_distrust(inode);
		spw_settle_locked(inode);
		return EIO;
	}
	if (rc != 0)
		return rc;
	if (loss->is_not_stored || attr->residency != SPW_ABSENT) {
		spw_damage_noted(inode);
		atomic_store(&inode->error, EIO);
		tell(inode, reason, "its bytes are lost: write it again, or delete it");
		return EIO;
	}
	spw_place_locked(inode, attr);
	inode->lost_ms = now;
	tell(inode, reason, "the bucket has it: it is fetched again when it is read");
	spw_set_aside(inode->ino, epoch);
	return EAGAIN;
}

static int lose_locked(struct spw_inode *inode, const char *reason)
{
	if (atomic_load(&inode->error) != 0)
		return EIO;
	if (!spw_files_answer()) {
		tell_again(inode, reason, "the stamp cannot be read either: check the disk");
		return EIO;
	}
	if (!inode->write_open) {
		struct spw_loss loss = { .reason = reason };
		struct spw_attr attr;

		return give_up_locked(inode, &loss, &attr);
	}
	/* The bucket does not have what was written. */
	spw_damage_note(inode, reason);
	atomic_store(&inode->error, EIO);
	tell(inode, reason, "its bytes are lost: write it again, or delete it");
	return EIO;
}

static bool is_of_locked(const struct spw_inode *inode, uint64_t epoch)
{
	return inode->epoch == epoch && !inode->leaving;
}

int spw_unreadable(struct spw_inode *inode, uint64_t epoch, int error)
{
	char reason[REASON_BYTES];
	int rc = EAGAIN;

	snprintf(reason, sizeof(reason), "data file %" PRIu64 ".%" PRIu64 " cannot be read: %s",
		 inode->ino, epoch, strerror(error));
	pthread_mutex_lock(&inode->meta);
	if (is_of_locked(inode, epoch))
		rc = lose_locked(inode, reason);
	pthread_mutex_unlock(&inode->meta);
	return rc;
}

/* Finds the size of the data file. -1: there is none. Returns 0 or an errno. */
static int size_of(struct spw_inode *inode, int64_t *size)
{
	struct stat st;
	int fd, rc = spw_fd_get(inode, SPW_ABSENT_FAILS, &fd);

	*size = -1;
	if (rc != 0)
		return rc == ENOENT ? 0 : rc;
	if (fstat(fd, &st) != 0)
		rc = errno;
	else
		*size = st.st_size;
	spw_fd_release(inode);
	return rc;
}

/* Returns whether there must be a data file. */
static bool has_bytes_locked(struct spw_inode *inode, const struct spw_attr *attr)
{
	return attr->size > 0 ||
	       (inode->write_open && atomic_load(&inode->writes) != inode->sealed);
}

int spw_too_short_locked(struct spw_inode *inode)
{
	char reason[REASON_BYTES], found[64];
	struct spw_attr attr;
	int64_t size;
	int rc = spw_attr_locked(inode, &attr);

	if (rc != 0 || !has_bytes_locked(inode, &attr))
		return rc;
	rc = size_of(inode, &size);
	if (rc != 0 && !spw_is_lost(rc))
		return rc;
	/* While the file is open for writing its data file is the truth: a client may cut it. */
	if (rc == 0 && size >= 0 && (inode->write_open || (uint64_t)size >= attr.size))
		return 0;
	if (rc != 0)
		snprintf(found, sizeof(found), "cannot be opened: %s", strerror(rc));
	else if (size < 0)
		snprintf(found, sizeof(found), "is missing, %" PRIu64 " bytes expected", attr.size);
	else
		snprintf(found, sizeof(found), "has %" PRId64 " bytes, %" PRIu64 " expected", size,
			 attr.size);
	snprintf(reason, sizeof(reason), "data file %" PRIu64 ".%" PRIu64 " %s", inode->ino,
		 inode->epoch, found);
	return lose_locked(inode, reason);
}

int spw_too_short(struct spw_inode *inode, uint64_t epoch)
{
	int rc = EAGAIN;

	pthread_mutex_lock(&inode->meta);
	if (is_of_locked(inode, epoch))
		rc = spw_too_short_locked(inode);
	pthread_mutex_unlock(&inode->meta);
	return rc;
}

/* Forgets the damage of an absent file, whose object was found again. */
static int found_locked(struct spw_inode *inode, struct spw_attr *attr)
{
	int rc = spw_attr_locked(inode, attr);

	if (rc == 0 && attr->residency != SPW_ABSENT)
		rc = EBUSY; /* bytes of its data file are lost */
	if (rc == 0 && atomic_load(&inode->error) != 0)
		rc = spw_damage_clear(inode);
	if (rc == 0)
		atomic_store(&inode->error, 0);
	return rc;
}

static int find_locked(struct spw_inode *inode, enum spw_finding finding, const struct spw_loss *loss,
		       struct spw_attr *attr)
{
	int rc;

	if (inode->write_open)
		return EBUSY;
	if (finding == SPW_FOUND_AGAIN)
		return found_locked(inode, attr);
	if (atomic_load(&inode->error) != 0 || !spw_files_answer())
		return EIO;
	rc = give_up_locked(inode, loss, attr);
	return attr->ino != 0 ? 0 : rc;
}

int spw_finding(struct spw_inode *inode, uint64_t epoch, enum spw_finding finding,
		const struct spw_loss *loss, struct spw_attr *attr)
{
	int rc;

	pthread_mutex_lock(&inode->meta);
	rc = is_of_locked(inode, epoch) ? find_locked(inode, finding, loss, attr) : ESTALE;
	pthread_mutex_unlock(&inode->meta);
	if (rc != 0)
		attr->ino = 0;
	return rc;
}
