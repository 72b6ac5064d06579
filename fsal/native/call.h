/* Gathered calls of the namespace: one thread at a time is in Python for all calls that wait. */
#ifndef SPILLWAY_CALL_H
#define SPILLWAY_CALL_H

#include "bridge.h"

/* Starts the threads that spw_call needs. Returns 0 or an errno. */
int spw_calls_start(void);

/* Calls one operation. Returns 0 or the errno that it answered. */
int spw_call(enum spw_op op, const struct spw_request *request, struct spw_reply *reply);

#endif
