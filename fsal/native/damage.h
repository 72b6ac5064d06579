/* Files whose bytes are known to be lost, by this process or by an earlier one. */
#ifndef SPILLWAY_DAMAGE_H
#define SPILLWAY_DAMAGE_H

#include "inode.h"

/* Asks the namespace what it knows of earlier starts. Returns 0 or an errno. */
int spw_damage_start(void);

/* Gives a new inode object the error that is known of its inode. */
void spw_damage_recall(struct spw_inode *inode);

/* Tells the namespace that bytes are lost, and every later object of the inode. When the namespace
 * cannot be told, the sealer tries again after the next writer. */
void spw_damage_note(struct spw_inode *inode, const char *reason);

/* None of the lost bytes is left. Returns 0 or an errno. */
int spw_damage_clear(struct spw_inode *inode);

#endif
