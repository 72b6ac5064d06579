/* The queue of the sealer: files whose last writer closed, and inodes without a name. */
#ifndef SPILLWAY_QUEUE_H
#define SPILLWAY_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "bridge.h"
#include "inode.h"

#define SPW_QUEUE_BATCH 64u

/* Prepares the queue. Call it before any other function of this header. */
void spw_queue_start(void);

/* Queues a file whose last writer ended: to be synced, then to be sealed. Returns true if the queue has taken over a handle of the
 * caller's, false if the file was queued already. */
bool spw_queue_add(struct spw_inode *inode);

/* Queues a file that could not be sealed, after a pause that doubles with each try. Returns the
 * same as spw_queue_add. */
bool spw_queue_again(struct spw_inode *inode);

/* Notes that a file was sealed. After its next failure it waits for the shortest time. */
void spw_queue_settled(struct spw_inode *inode);

/* Queues an inode that lost its last name and that nothing has open. */
void spw_queue_orphan(uint64_t ino, uint64_t epoch);

/* Takes the results of a batch of orphans. Those that could not be reclaimed are queued again, and no
 * orphan is taken for a while: at first 1 s, with each batch that fails twice as long. */
void spw_queue_orphans_done(const struct spw_orphan *orphans, unsigned int count);

/* Waits for a file whose bytes may not be on stable storage, and takes it out until
 * spw_queue_synced. Several threads may call this. */
struct spw_inode *spw_queue_to_sync(void);

/* Gives a file to the sealer, whether or not it could be synced. */
void spw_queue_synced(struct spw_inode *inode);

/* Waits until there is something to seal or to reclaim, and takes it: files, each with a handle, and
 * orphans, at most SPW_QUEUE_BATCH of each. Returns the number of files. */
unsigned int spw_queue_take(struct spw_inode **inodes, struct spw_orphan *orphans,
			    unsigned int *orphan_count);

/* Notes that so many files and orphans that spw_queue_take gave are done. */
void spw_queue_done(unsigned int count);

/* Waits until nothing is queued or taken, for at most so many seconds. Returns whether nothing
 * is. */
bool spw_queue_flush(unsigned int seconds);

#endif
