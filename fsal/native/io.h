/* The operations that Ganesha calls to read and to write. They do not use Python. */
#ifndef SPILLWAY_IO_H
#define SPILLWAY_IO_H

#include "ganesha.h"

/* Fills the operations on bytes. */
void spw_io_ops(struct fsal_obj_ops *ops);

#endif
