/* Data files: where they are, and the one descriptor of each. */
#ifndef SPILLWAY_FD_H
#define SPILLWAY_FD_H

#include <stdbool.h>
#include <stdint.h>

#include "inode.h"

/* Opens the data directory, which has 256 shard directories. Returns 0 or an errno. */
int spw_files_start(const char *dir);

/* Keeps the descriptor open, once it is, until spw_fd_release: for an open state. */
void spw_fd_hold(struct spw_inode *inode);
void spw_fd_release(struct spw_inode *inode);

/* What is done where there is no data file. */
enum spw_absent {
	SPW_ABSENT_FAILS,    /* ENOENT */
	SPW_ABSENT_IF_NEW,   /* it is made, or EIO when it should have bytes */
	SPW_ABSENT_IS_EMPTY, /* it is made: the old bytes are not wanted */
};

/* A descriptor to use until spw_fd_release. Returns 0 or an errno. */
int spw_fd_get(struct spw_inode *inode, enum spw_absent absent, int *fd);

/* Whether a data file may be made: its row says that it is empty. */
void spw_fd_expect(struct spw_inode *inode, bool is_empty);

/* For writer.c alone; `meta` is held, no client has written to the inode. A new inode has no data
 * file. One that is there was another inode's, whose number a restored database gave out again: it
 * is moved to lost+found. Returns 0 or EIO. */
int spw_expect_no_file(const struct spw_inode *inode);

/* Deletes the data file, if there is one, of an inode whose row is gone. */
void spw_unlink(uint64_t ino, uint64_t epoch);

/* Puts the directory entry of a new data file on stable storage, once. Returns 0 or an errno. */
int spw_fd_sync_entry(struct spw_inode *inode);

/* Descriptor of the data directory, for statfs. */
int spw_files_dir_fd(void);

#endif
