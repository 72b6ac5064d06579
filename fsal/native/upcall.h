/* Ganesha's own cache is told what changed. */
#ifndef SPILLWAY_UPCALL_H
#define SPILLWAY_UPCALL_H

#include <stdbool.h>
#include <stdint.h>

#include "ganesha.h"

/* Ganesha believes nothing that it knew of an inode: attributes, names, listings; with is_moved also in
 * which directory a directory is. Not from inside an operation that Ganesha called. */
void spw_upcall_forget(const struct fsal_up_vector *up, uint64_t ino, uint64_t generation,
		       bool is_moved);

#endif
