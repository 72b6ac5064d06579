/* A cache of names, as the namespace told them lately: the inode of each, or that it is absent.
 *
 * Ganesha forgets all names of a directory when it learns of a new mtime, so after each REMOVE. The
 * next REMOVE would have to ask the namespace which inode it removes. And before it creates a name,
 * Ganesha looks it up twice. No other process changes names that clients see, and every change
 * passes here twice, before and after its call. So an answer is right if no change of its name was
 * under way at any time since the question: such a change may be committed, and other clients may
 * see its directory as it is now, before its answer passes here.
 */
#ifndef SPILLWAY_DENTRY_H
#define SPILLWAY_DENTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "bridge.h"

/* Returns the present time, in counts of events. Call it before a look-up or a listing. */
uint64_t spw_dentry_asked(void);

/* In the place of an inode number: the name is absent. */
#define SPW_NO_INO UINT64_MAX

/* Keeps the inode of a name, or SPW_NO_INO, from an answer. began: result of spw_dentry_asked()
 * before the call. */
void spw_dentry_learn(uint64_t dir, const char *name, uint32_t length, uint64_t ino, uint64_t began);

/* Forgets the names that a change touches. Call it before every change. Returns when it began. */
uint64_t spw_dentry_change(enum spw_op op, const struct spw_request *request);

/* Keeps or forgets the names that a change touched. Call it after every change, once for each
 * spw_dentry_change(), also after a change that failed (reply: NULL then). began: its result. */
void spw_dentry_changed(enum spw_op op, const struct spw_request *request,
			const struct spw_reply *reply, uint64_t began);

/* Returns the inode that is known to have a name, or 0. */
uint64_t spw_dentry_find(uint64_t dir, const char *name, uint32_t length);

/* Returns whether a name is known to be absent for clients. The gateway finds more names. */
bool spw_dentry_lacks(uint64_t dir, const char *name, uint32_t length);

#endif
