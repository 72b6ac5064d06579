/* Tells Ganesha's own cache what changed. */
#ifndef SPILLWAY_UPCALL_H
#define SPILLWAY_UPCALL_H

#include <stdbool.h>
#include <stdint.h>

#include "ganesha.h"

/* Makes Ganesha drop what it knows of an inode: attributes, names, listings; with is_moved also the
 * directory above a directory. Inside an operation that Ganesha called, only for an inode that the
 * operation is not about: Ganesha may hold the locks of those. */
void spw_upcall_forget(const struct fsal_up_vector *up, uint64_t ino, uint64_t generation,
		       bool is_moved);

/* Does the same, as for an inode that moved, if Ganesha has a handle of the inode. If it has none, or
 * for 0, there is nothing to forget. */
void spw_upcall_forget_known(const struct fsal_up_vector *up, uint64_t ino);

/* Makes Ganesha ask for attributes or names of an inode before it uses them again. An operation may
 * call it for its own inode, but not while Ganesha asks for attributes or changes the inode's names.
 * Another thread may be about to fill the entry with what it asked for before. what:
 * FSAL_UP_INVALIDATE_ATTRS or _CONTENT. */
void spw_upcall_doubt(const struct fsal_up_vector *up, uint64_t ino, uint64_t generation,
		      uint32_t what);

/* Makes Ganesha drop its entry of an inode if nothing uses the entry: no open file and no running
 * operation. Must not be called inside an operation that Ganesha called. */
void spw_upcall_release(const struct fsal_up_vector *up, uint64_t ino, uint64_t generation);

#endif
