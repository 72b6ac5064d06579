/* Names: what Ganesha calls to look up, list, make, link, rename and remove them. */
#ifndef SPILLWAY_NAMES_H
#define SPILLWAY_NAMES_H

#include "bridge.h"
#include "ganesha.h"

/* Asks who a name is, unless both the name and its inode are known here. Returns 0 or the errno. */
int spw_find(const struct spw_request *request, struct spw_attr *attr);

/* Fills the operations on names. */
void spw_names_ops(struct fsal_obj_ops *ops);

#endif
