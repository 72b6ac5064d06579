/* The life of a file that is written: its writers, the queue of files whose last writer closed, and
 * the threads that sync and seal them. Without Ganesha and Python.
 */
#ifndef SPILLWAY_SEAL_H
#define SPILLWAY_SEAL_H

#include <stdbool.h>
#include <stdint.h>

#include "bridge.h"
#include "inode.h"

/* ---- writer.c ---- */

/* Writers of an inode. For the first one the namespace opens the inode for writing, and the last
 * one leaves it to the sealer. */

/* Begins a writer. The first one tells the namespace, durably, before it returns 0. Returns 0 or an
 * errno: EAGAIN for an absent file, whose bytes are wanted then. created: attributes of a file that
 * the namespace just made open for writing, or NULL. They are not believed when something newer was
 * seen of it; else see spw_expect_no_file. */
int spw_writer_begin(struct spw_inode *inode, const struct spw_attr *created);

/* Begins a writer that empties the file before it writes. An absent file is empty then, in a data
 * file of a new epoch. For any other file the caller truncates. Returns 0 or an errno. */
int spw_writer_begin_emptied(struct spw_inode *inode);

/* Does spw_expect_no_file for a file that the namespace made, not open for writing, with these
 * attributes. Does nothing when something newer was seen of it. Returns 0 or an errno. */
int spw_made_closed(struct spw_inode *inode, const struct spw_attr *created);

/* Ends a writer. After the last one the sealer puts the bytes on stable storage and seals the file,
 * later, with all files that wait, in one transaction. No client was promised the seal: after a
 * crash the next start seals. */
void spw_writer_end(struct spw_inode *inode);

/* Keeps a file that is open for writing from being sealed until spw_writer_end. Returns whether it
 * is open for writing; if not, the call does nothing. */
bool spw_keep_open(struct spw_inode *inode);

/* Sets the mtime of the data file, on stable storage, after a client has set the mtime. It does so
 * only if the file is open for writing, because fstat is the truth then. A seal that began before
 * would put the old mtime back: see spw_keep_open. Returns 0 or an errno. */
int spw_touch(struct spw_inode *inode, int64_t mtime_ns);

/* ---- queue.c ---- */

/* The queue of the sealer: files whose last writer closed, and inodes without a name. */

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

/* ---- seal.c ---- */

/* The sealer: the thread that seals queued files and reclaims queued inodes without a name. */

/* Starts the thread that seals and reclaims. Returns 0 or an errno. */
int spw_sealer_start(void);

#endif
