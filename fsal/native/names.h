/* The operations that Ganesha calls to look up, list, make, link, rename and remove names. */
#ifndef SPILLWAY_NAMES_H
#define SPILLWAY_NAMES_H

#include "bridge.h"
#include "ganesha.h"

/* Finds the inode of a name. It asks the namespace unless name and inode are known here. Returns 0
 * or the errno. */
int spw_find(const struct spw_request *request, struct spw_attr *attr);

/* Fills the operations on names. */
void spw_names_ops(struct fsal_obj_ops *ops);

#endif
