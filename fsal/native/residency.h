/* The place of a file's bytes: evicted, wanted, arrived. It uses neither Ganesha nor Python.
 *
 * The state of an inode that exists changes only here and in writer.c, under its `meta` and across
 * the call of the namespace. So C and the row agree on the epoch before anyone opens a data file.
 */
#ifndef SPILLWAY_RESIDENCY_H
#define SPILLWAY_RESIDENCY_H

#include <stdbool.h>
#include <stdint.h>

#include "bridge.h"
#include "inode.h"

/* Makes a file absent that the bucket has, and deletes its data file once that is durable. attr: of
 * the file afterwards. Returns 0, EBUSY if the file is open or not clean, or an errno. */
int spw_evict(struct spw_inode *inode, uint64_t content_version, struct spw_attr *attr);

/* Asks the namespace for the epoch of an inode, if it is not known. Returns whether it is known now. It
 * is not while another call has `meta`: a READ does not wait for an eviction. */
bool spw_settle(struct spw_inode *inode);

/* Takes what the namespace says of an epoch that is not known, as after an eviction without an answer.
 * While that is not known either, no descriptor is given: the epoch decides which data file a writer
 * gets. `meta` is held. */
void spw_settle_locked(struct spw_inode *inode);

/* Makes a file resident, all of whose bytes are on stable storage. attr: of the file afterwards.
 * Returns 0, ESTALE if the file has another epoch or version, or an errno. */
int spw_arrived(struct spw_inode *inode, uint64_t epoch, uint64_t content_version,
		struct spw_attr *attr);

/* Notes that verified bytes are in the data file, or that the bytes that clients wait for cannot be
 * had. is_all: nothing in the data file is believed any more. Return 0, ESTALE if the file has another epoch or is resident, or an errno. */
int spw_present(struct spw_inode *inode, uint64_t epoch, uint64_t offset, uint64_t length);
int spw_failed(struct spw_inode *inode, uint64_t epoch, bool is_all);

/* Asks for bytes of an absent file. *size becomes the size of the file. Returns 0 if they are in
 * the data file, EINPROGRESS if they are wanted from now on, ENOENT if the file is not absent any
 * more, or an errno. */
int spw_want(struct spw_inode *inode, uint64_t offset, uint64_t length, uint64_t *size);

/* Asks for all bytes of an absent file, for a call that needs the whole file. Returns EAGAIN, until
 * the file has arrived, or an errno. The second function is for callers that hold `meta`. */
int spw_want_all(struct spw_inode *inode);
int spw_want_all_locked(struct spw_inode *inode);

#endif
