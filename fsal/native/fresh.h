/* A record of the names that directories made since the start cannot have.
 *
 * Ganesha looks a name up twice before it creates it, and once before it renames something to it.
 * The name is nearly always absent, and to ask the namespace would cost more than the creation.
 * Every name in a directory that this process made was made by a call that passed here. So a name
 * that never passed here is absent. Nothing is known of older directories.
 */
#ifndef SPILLWAY_FRESH_H
#define SPILLWAY_FRESH_H

#include <stdbool.h>
#include <stdint.h>

#include "bridge.h"

/* Returns the present time, in counts of events. Call it before a directory is made. */
uint64_t spw_fresh_begin(void);

/* Notes a new, empty directory. began: result of spw_fresh_begin(). If another call may have made a
 * name in the directory since, nothing is noted. */
void spw_fresh_made(uint64_t dir, uint64_t began);

/* Remembers the name that a change makes, if it makes one. Call it before every change, whether or
 * not the change succeeds. */
void spw_fresh_change(enum spw_op op, const struct spw_request *request);

/* Forgets the name or the directory that a change took away. Call it after every change that
 * succeeded. */
void spw_fresh_changed(enum spw_op op, const struct spw_request *request,
		       const struct spw_reply *reply);

/* Returns whether a directory is known not to have a name. */
bool spw_fresh_lacks(uint64_t dir, const char *name, uint32_t length);

#endif
