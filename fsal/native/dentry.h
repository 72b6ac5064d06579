/* A cache of names and their inodes, as the namespace told them lately.
 *
 * Ganesha forgets all names of a directory when it learns of a new mtime, so after each REMOVE. The
 * next REMOVE would have to ask the namespace which inode it removes. No other process changes
 * names, and every change passes here twice, before and after its call. So an answer is right if no
 * call touched its name since the call began.
 */
#ifndef SPILLWAY_DENTRY_H
#define SPILLWAY_DENTRY_H

#include <stdint.h>

#include "bridge.h"

/* Returns the present time, in counts of events. Call it before a look-up or a listing. */
uint64_t spw_dentry_asked(void);

/* Keeps the inode of a name from an answer. began: result of spw_dentry_asked() before the call. */
void spw_dentry_learn(uint64_t dir, const char *name, uint32_t length, uint64_t ino, uint64_t began);

/* Forgets the names that a change touches. Call it before every change. Returns when it began. */
uint64_t spw_dentry_change(enum spw_op op, const struct spw_request *request);

/* Keeps or forgets the names that a change touched. Call it after every change, also after one that
 * failed (reply: NULL then). began: result of spw_dentry_change(). */
void spw_dentry_changed(enum spw_op op, const struct spw_request *request,
			const struct spw_reply *reply, uint64_t began);

/* Returns the inode that is known to have a name, or 0. */
uint64_t spw_dentry_find(uint64_t dir, const char *name, uint32_t length);

#endif
