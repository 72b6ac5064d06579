/* Notes when files are read, for the evictor. A read does not wait for it. */
#ifndef SPILLWAY_READS_H
#define SPILLWAY_READS_H

#include "inode.h"

/* Notes that a file was read, at most once a minute. Many at a time are dropped: a stamp that is
 * missing makes a file look older than it is, and costs one more download. */
void spw_reads_note(struct spw_inode *inode);

/* Tells the namespace what was noted. */
void spw_reads_flush(void);

/* Starts the thread that does so every ten seconds. Returns 0 or an errno. */
int spw_reads_start(void);

#endif
