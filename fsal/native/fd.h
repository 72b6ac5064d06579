/* Data files: where they are, and the one descriptor of each. */
#ifndef SPILLWAY_FD_H
#define SPILLWAY_FD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "inode.h"

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
bool spw_fd_is_still(struct spw_inode *inode, const struct spw_reader *reader);

/* Lets no call have a descriptor until spw_fd_stay or spw_place_locked. Returns false, and does
 * nothing, if one is in use. `meta` is held. */
bool spw_fd_leave(struct spw_inode *inode);
void spw_fd_stay(struct spw_inode *inode);

/* Lets no call have a descriptor until spw_place_locked, also if some are in use: the epoch is not
 * known any more. `meta` is held. */
void spw_fd_doubt(struct spw_inode *inode);

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

#endif
