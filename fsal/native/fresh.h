/* Directories made since the start, and which names they cannot have.
 *
 * Ganesha looks a name up twice before it creates it and once before it renames something to it, and
 * the answer is nearly always that there is none: asking the namespace would cost more than the
 * creation. Every name of a directory that this process made was made by a call that passed here, so
 * a name that never did is absent. Nothing is known of older directories.
 */
#ifndef SPILLWAY_FRESH_H
#define SPILLWAY_FRESH_H

#include <stdbool.h>
#include <stdint.h>

#include "bridge.h"

/* Before a directory is made. */
uint64_t spw_fresh_begin(void);

/* The directory was made, empty. began: of spw_fresh_begin(); if somebody may have made a name in it
 * since, nothing is noted. */
void spw_fresh_made(uint64_t dir, uint64_t began);

/* Before every change, whether or not it succeeds: remembers the name that it makes, if it makes one. */
void spw_fresh_change(enum spw_op op, const struct spw_request *request);

/* After every change that succeeded: forgets the name that it took away, or the directory, if it did. */
void spw_fresh_changed(enum spw_op op, const struct spw_request *request,
		       const struct spw_reply *reply);

/* Whether a directory is known not to have a name. */
bool spw_fresh_lacks(uint64_t dir, const char *name, uint32_t length);

#endif
