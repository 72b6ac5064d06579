/* Names and the inodes they name, as far as they were told to this process lately.
 *
 * Ganesha forgets all names of a directory when it learns of a new mtime, which each REMOVE causes: the
 * next one would have to ask the namespace who it is that it removes. No other process changes names,
 * and every change passes here twice, before and after its call; so what was learned by a call is right
 * if no call touched that name since the call began.
 */
#ifndef SPILLWAY_DENTRY_H
#define SPILLWAY_DENTRY_H

#include <stdint.h>

#include "bridge.h"

/* Before a look-up or a listing: when it began. */
uint64_t spw_dentry_asked(void);

/* What it answered. began: of spw_dentry_asked(). */
void spw_dentry_learn(uint64_t dir, const char *name, uint32_t length, uint64_t ino, uint64_t began);

/* Before every change: forgets the names that it touches. Returns when it began. */
uint64_t spw_dentry_change(enum spw_op op, const struct spw_request *request);

/* After every change, also one that failed (reply: NULL then). began: of spw_dentry_change(). */
void spw_dentry_changed(enum spw_op op, const struct spw_request *request,
			const struct spw_reply *reply, uint64_t began);

/* The inode that a name is known to name, or 0. */
uint64_t spw_dentry_find(uint64_t dir, const char *name, uint32_t length);

#endif
