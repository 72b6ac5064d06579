/* Syncs of data files: threads that wait share one fdatasync, and a failure is final. */
#ifndef SPILLWAY_SYNC_H
#define SPILLWAY_SYNC_H

#include <stdint.h>

#include "inode.h"

/* Puts all changes that were answered so far on stable storage; threads that wait at the same time
 * share one fdatasync. A failure is final: the kernel drops the pages it could not write, so a
 * later success would be a lie. Returns 0 or an errno. */
int spw_sync_fd(struct spw_inode *inode, int fd);

/* Puts the file's times on stable storage, which fdatasync leaves out. A failure is final here too:
 * the kernel reports lost bytes once, and this call may get the report. Returns 0 or an errno. */
int spw_sync_times(struct spw_inode *inode, int fd);

/* Returns a count that changes when accepted bytes are lost. The NFS write verifier contains it. */
uint32_t spw_lost_count(void);

#endif
