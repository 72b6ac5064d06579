/* The operations that Ganesha calls to create, open, reopen and close a file. */
#ifndef SPILLWAY_OPEN_H
#define SPILLWAY_OPEN_H

#include "ganesha.h"

/* Fills the operations on opens. */
void spw_open_ops(struct fsal_obj_ops *ops);

/* Makes a state for Ganesha, with room for the flags of its open. */
struct state_t *spw_alloc_state(struct fsal_export *export, enum state_type type,
				struct state_t *related);

#endif
