/* Operations on extended attributes (RFC 8276). Only NFSv4.2 clients can ask for them. */
#ifndef SPILLWAY_XATTR_H
#define SPILLWAY_XATTR_H

#include "ganesha.h"

/* Fills the operations on extended attributes. */
void spw_xattr_ops(struct fsal_obj_ops *ops);

#endif
