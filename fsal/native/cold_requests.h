/* What the hydrator and the evictor ask at the door. No Ganesha: clients see no change of it. */
#ifndef SPILLWAY_COLD_REQUESTS_H
#define SPILLWAY_COLD_REQUESTS_H

#include <stdint.h>

#include "door_frame.h"

/* Answers a request from SPW_DOOR_EVICT on. Returns 0, EPERM for users other than root, ENOTSUP for
 * another operation, or an errno. */
int spw_cold_serve(uint32_t op, const struct spw_door_request *asked,
		   struct spw_door_reply *reply);

#endif
