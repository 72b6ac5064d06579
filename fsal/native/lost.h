/* Data files that lack bytes of their rows, or that the disk does not give back. It uses neither
 * Ganesha nor Python.
 *
 * Such bytes are never answered as zeros or as the end of the file. If the bucket has the file, its
 * local copy is given up: the data file goes to set-aside, and the file is absent, so that its
 * bytes are fetched again. If not, the file is damaged until it is emptied. Nothing is decided while
 * the disk does not give back the stamp either: then it has failed as a whole.
 */
#ifndef SPILLWAY_LOST_H
#define SPILLWAY_LOST_H

#include <stdbool.h>
#include <stdint.h>

#include "inode.h"

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

#endif
