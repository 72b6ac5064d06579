/* Share reservations (RFC 8881 section 9.7): which opens and accesses exclude each other. */
#ifndef SPILLWAY_SHARE_H
#define SPILLWAY_SHARE_H

#include <stdbool.h>

#include "ganesha.h"
#include "inode.h"

/* Checks whether the shares of others allow an access without an open of its own. */
fsal_status_t spw_share_check(struct spw_inode *inode, fsal_openflags_t access, bool bypass);

/* Checks and changes the reservation of an open in one step. */
fsal_status_t spw_share_change(struct spw_inode *inode, fsal_openflags_t from, fsal_openflags_t to);

#endif
