/* The operations that Ganesha calls on an object of any kind. */
#ifndef SPILLWAY_OPS_H
#define SPILLWAY_OPS_H

/* Fills the operations of every object, once. */
void spw_obj_ops_fill(void);

#endif
