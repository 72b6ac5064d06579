/* Files whose bytes are known to be lost, by this process or by an earlier one. */
#ifndef SPILLWAY_DAMAGE_H
#define SPILLWAY_DAMAGE_H

#include "inode.h"

/* Asks the namespace for the damage of earlier starts. Returns 0 or an errno. */
int spw_damage_start(void);

/* Sets the error of a new inode object if bytes of its inode are known to be lost. */
void spw_damage_recall(struct spw_inode *inode);

/* Records in the namespace, and for every later object of the inode, that bytes are lost. If the
 * namespace does not answer, the sealer tries again after the next writer. */
void spw_damage_note(struct spw_inode *inode, const char *reason);

/* Takes in damage that the namespace has recorded by itself. */
void spw_damage_noted(struct spw_inode *inode);

/* Records that the file has no lost bytes any more. Returns 0 or an errno. */
int spw_damage_clear(struct spw_inode *inode);

#endif
