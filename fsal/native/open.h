/* The operations that Ganesha calls to create, open, reopen and close a file. */
#ifndef SPILLWAY_OPEN_H
#define SPILLWAY_OPEN_H

#include "ganesha.h"

/* Fills the operations on opens. */
void spw_open_ops(struct fsal_obj_ops *ops);

#endif
