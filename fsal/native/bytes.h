/* The bytes of regular files: the data files, what is on stable storage, and bytes that are lost.
 * Without Ganesha and Python.
 */
#ifndef SPILLWAY_BYTES_H
#define SPILLWAY_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "bridge.h"
#include "inode.h"

/* ---- fd.c ---- */

/* Data files: where they are, and the one descriptor of each. */

/* Opens the data directory, which has 256 shard directories. Returns 0 or an errno. */
int spw_files_start(const char *dir);

/* Keeps the descriptor, once it is open, until spw_fd_release. Open states use it. */
void spw_fd_hold(struct spw_inode *inode);
void spw_fd_release(struct spw_inode *inode);

/* The effect of a missing data file. */
enum spw_absent {
	SPW_ABSENT_FAILS,    /* the call fails with ENOENT; it does not write to the file */
	SPW_ABSENT_IF_NEW,   /* the file is made; EIO if it should have bytes */
	SPW_ABSENT_IS_EMPTY, /* the file is made: its old bytes are not wanted */
};

/* Gives a descriptor to use until spw_fd_release. Returns 0 or an errno: EAGAIN while the epoch of
 * the data file is changing. */
int spw_fd_get(struct spw_inode *inode, enum spw_absent absent, int *fd);

/* A descriptor to read with, or ENOENT, and what it is of. */
struct spw_reader {
	int fd;
	bool is_absent;
	uint64_t epoch;
};

/* As spw_fd_get with SPW_ABSENT_FAILS. Epoch and residency of the inode may change while the
 * descriptor is in use, and the descriptor may become that of the new data file. */
int spw_fd_get_to_read(struct spw_inode *inode, struct spw_reader *reader);

/* Returns whether the inode still has the epoch of a reader. If not, what was read may be of another
 * data file: holes of one that has not arrived. */
bool spw_fd_is_current(struct spw_inode *inode, const struct spw_reader *reader);

/* Lets no call have a descriptor until spw_fd_stay or spw_place_locked. Returns false, and does
 * nothing, if one is in use. `meta` is held. */
bool spw_fd_leave(struct spw_inode *inode);
void spw_fd_stay(struct spw_inode *inode);

/* Lets no call have a descriptor until spw_place_locked, also if some are in use: the epoch is not
 * known any more. `meta` is held. */
void spw_fd_distrust(struct spw_inode *inode);

/* Sets whether a data file may be made. It may if its row says that it is empty. */
void spw_fd_expect(struct spw_inode *inode, bool is_empty);

/* Moves the data file of a new inode, if there is one, to set-aside. Such a file belonged to
 * another inode, whose number a restored database gave out again. Only writer.c calls this. `meta`
 * is held, and no client has written to the inode. Returns 0 or EIO. */
int spw_expect_no_file(const struct spw_inode *inode);

/* Moves the data file of an epoch that is past, if there is one, to set-aside: the sectors that it
 * has cannot be read, and are not to be given to another file. */
void spw_set_aside(uint64_t ino, uint64_t epoch);

/* Returns whether the disk gives back a file that is known to be there, the stamp. If not, the disk
 * as a whole has failed, and says nothing about any one file. */
bool spw_files_answer(void);

/* Fills what the disk says of the data file of the present epoch. Returns 0 or an errno. */
int spw_file_stat(const struct spw_inode *inode, struct stat *st);

/* Deletes the data file, if there is one, of an inode whose row is deleted. */
void spw_unlink(uint64_t ino, uint64_t epoch);

/* Puts the directory entry of a new data file on stable storage, once. Returns 0 or an errno. */
int spw_fd_sync_entry(struct spw_inode *inode);

/* Returns how many opens of data files found no descriptor left since the start. */
uint64_t spw_files_refused(void);

/* Returns the descriptor of the data directory, for statfs. */
int spw_files_dir_fd(void);

/* ---- sync.c ---- */

/* Syncs of data files: threads that wait share one fdatasync, and a failure is final. */

/* Puts all changes that were answered so far on stable storage; threads that wait at the same time
 * share one fdatasync. A failure is final: the kernel drops the pages it could not write, so a
 * later success would be a lie. Returns 0 or an errno. */
int spw_sync_fd(struct spw_inode *inode, int fd);

/* Puts the file's times on stable storage, which fdatasync leaves out. A failure is final here too:
 * the kernel reports lost bytes once, and this call may get the report. Returns 0 or an errno. */
int spw_sync_times(struct spw_inode *inode, int fd);

/* Returns a count that changes when accepted bytes are lost. The NFS write verifier contains it. */
uint32_t spw_lost_count(void);

/* ---- damage.c ---- */

/* Files whose bytes are known to be lost, by this process or by an earlier one. */

/* Asks the namespace for the damage of earlier starts. Returns 0 or an errno. */
int spw_damage_start(void);

/* Sets the error of a new inode object if bytes of its inode are known to be lost. */
void spw_damage_recall(struct spw_inode *inode);

/* Records in the namespace, and for every later object of the inode, that bytes are lost. If the
 * namespace does not answer, the sealer tries again after the next writer. */
void spw_damage_note(struct spw_inode *inode, const char *reason);

/* Takes in damage that the namespace has recorded by itself. */
void spw_damage_noted(struct spw_inode *inode);

/* Records that the file has no lost bytes any more. Returns 0 or an errno. */
int spw_damage_clear(struct spw_inode *inode);

/* ---- lost.c ---- */

/* Data files that lack bytes of their rows, or that the disk does not give back. It uses neither
 * Ganesha nor Python.
 *
 * Such bytes are never answered as zeros or as the end of the file. If the bucket has the file, its
 * local copy is given up: the data file goes to set-aside, and the file is absent, so that its
 * bytes are fetched again. If not, the file is damaged until it is emptied. Nothing is decided while
 * the disk does not give back the stamp either: then it has failed as a whole. */

/* Returns whether an errno of a system call says that the disk does not have the bytes, in contrast to
 * a lack of memory or of descriptors. */
bool spw_is_lost(int error);

/* Takes in that the data file of an epoch could not be read. error: for which spw_is_lost is true.
 * Returns EAGAIN if the file has another epoch by now: read again; EIO, or another errno. */
int spw_unreadable(struct spw_inode *inode, uint64_t epoch, int error);

/* Looks whether the data file of an epoch is missing, or shorter than its row says and not open for
 * writing. Returns 0 if it is neither; otherwise as spw_unreadable. The second function is for callers
 * that hold `meta`, and means the present epoch. */
int spw_too_short(struct spw_inode *inode, uint64_t epoch);
int spw_too_short_locked(struct spw_inode *inode);

/* What another process found of a closed file. */
enum spw_finding {
	SPW_BYTES_DIFFER, /* the data file has not the bytes of the version, and the bucket has them */
	SPW_BYTES_GONE,   /* neither the disk nor the bucket has the bytes of the version */
	SPW_FOUND_AGAIN,  /* the bucket has the bytes of an absent file again */
	SPW_FINDINGS,
};

/* Takes in such a finding: gives the data file of an epoch up, records the damage, or forgets it.
 * attr: of the file afterwards. Returns 0, ESTALE if the file has another epoch, EBUSY if it is open
 * for writing or of another version, or an errno. */
int spw_finding(struct spw_inode *inode, uint64_t epoch, enum spw_finding finding,
		const struct spw_loss *loss, struct spw_attr *attr);

/* ---- bytes.c ---- */

/* Operations on the bytes of a regular file. Each call is a whole operation on its data file. */

/* Each returns 0 or an errno: EAGAIN while the call needs the whole file and the file is absent.
 * Amounts are in bytes. */

/* EINPROGRESS: the bytes are wanted from the bucket (cold.h). */
int spw_read(struct spw_inode *inode, const struct iovec *iov, int count, uint64_t offset,
	     size_t *amount, bool *eof);

int spw_write(struct spw_inode *inode, const struct iovec *iov, int count, uint64_t offset,
	      bool stable, size_t *amount);
int spw_truncate(struct spw_inode *inode, uint64_t size);
int spw_commit(struct spw_inode *inode);
int spw_seek(struct spw_inode *inode, uint64_t offset, int whence, uint64_t *found);
int spw_allocate(struct spw_inode *inode, uint64_t offset, uint64_t length, bool allocate);

/* ---- reads.c ---- */

/* Notes when files are read, for the evictor. A read does not wait for it. */

/* Notes that a file was read, at most once a minute. Many at a time are dropped: a stamp that is
 * missing makes a file look older than it is, and costs one more download. */
void spw_reads_note(struct spw_inode *inode);

/* Tells the namespace what was noted. */
void spw_reads_flush(void);

/* Starts the thread that does so every ten seconds. Returns 0 or an errno. */
int spw_reads_start(void);

#endif
