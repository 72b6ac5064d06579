/* Files whose bytes are in the bucket: what of them is here, who waits for the rest, and what the
 * hydrator and the evictor ask for. Without Ganesha and Python.
 */
#ifndef SPILLWAY_COLD_H
#define SPILLWAY_COLD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "bridge.h"
#include "control.h"
#include "inode.h"

/* ---- granules ---- */

/* A granule is the unit in which bytes of an absent file are wanted and present. Sizes, offsets and
 * lengths are in bytes. */

#define SPW_GRANULE_BYTES (UINT64_C(4) << 20)

static inline uint64_t spw_granules(uint64_t size)
{
	return size / SPW_GRANULE_BYTES + (size % SPW_GRANULE_BYTES != 0);
}

static inline bool spw_is_in_file(uint64_t size, uint64_t offset, uint64_t length)
{
	return length > 0 && offset < size;
}

/* Returns the last granule of a range that begins before the end of the file. */
static inline uint64_t spw_granule_last(uint64_t size, uint64_t offset, uint64_t length)
{
	uint64_t left = size - offset;

	return (offset + (length < left ? length : left) - 1) / SPW_GRANULE_BYTES;
}

/* Returns whether a range is whole granules, of which the last one of the file may be shorter. */
static inline bool spw_is_granules(uint64_t size, uint64_t offset, uint64_t length)
{
	return spw_is_in_file(size, offset, length) && length <= size - offset &&
	       offset % SPW_GRANULE_BYTES == 0 &&
	       ((offset + length) % SPW_GRANULE_BYTES == 0 || offset + length == size);
}

/* ---- cold.c ---- */

/* The bytes of absent files that clients use: which are here, which are wanted, and the READs that
 * wait for them. Without Ganesha and Python.
 *
 * An absent inode that is in use has a record of its granules. Nothing of it is durable, and it is
 * deleted with the inode object. The hydrator asks for wanted ranges and says which bytes are
 * present. One thread answers the READs that were parked. One lock guards everything here. It is
 * the last one in the order of inode.h, and is never held across a call of the namespace. */

/* A range of whole granules, cut at the end of the file. attr.ino 0: there is none. */
struct spw_wanted {
	struct spw_attr attr;
	uint64_t offset;
	uint64_t length;
};

/* A READ that waits. The caller fills the fields up to `resume`. */
struct spw_parked {
	struct spw_inode *inode; /* the READ keeps a handle on it */
	uint64_t offset;
	uint64_t length;
	uint64_t client; /* hash of its address */
	/* Answers the READ, in the thread of cold.c. rc: 0 when the bytes are present, or an
	 * errno. */
	void (*resume)(struct spw_parked *parked, int rc);

	TAILQ_ENTRY(spw_parked) entry;
	uint64_t due_ms;
	int rc;
};

/* Starts the thread that answers parked READs. park_ms: how long a READ is parked at the most.
 * Returns 0 or an errno. */
int spw_cold_start(uint32_t park_ms);

/* Makes the record of an absent inode, if there is none. `meta` is held. attr: its attributes.
 * Returns 0 or EAGAIN. */
int spw_cold_begin(struct spw_inode *inode, const struct spw_attr *attr);

/* Deletes the record of an inode, if there is one. READs that are parked for it are answered: with
 * 0 they read again. Only inode.c calls this. */
void spw_cold_forget(struct spw_inode *inode, int rc);

/* Queues the granules of a range that are not present, each once. *size becomes the size of the
 * file. Returns 0 if all are present, EINPROGRESS if some are not, EIO for a while after the
 * hydrator failed, or ENOENT if the inode has no record. */
int spw_cold_want(struct spw_inode *inode, uint64_t offset, uint64_t length, uint64_t *size);

/* Queues the last granule of a file of which all are present, once for a session of the hydrator:
 * it then verifies what is here and says that the file has arrived. */
void spw_cold_confirm(struct spw_inode *inode);

/* Parks a READ. Returns 0, and the READ may be answered already then; EALREADY if it is to be tried
 * again at once; EAGAIN if too many READs are parked, in all or of its client. */
int spw_cold_park(struct spw_parked *parked);

/* Hands a wanted range to the hydrator, each once for a session. Waits for one, at most wait_ms.
 * session: of the hydrator; another one hands out again what is not present, and the last granule
 * of each file of which everything is, so that it arrives. Returns 0, or EBUSY while another call
 * waits. */
int spw_cold_next(uint64_t session, uint32_t wait_ms, struct spw_wanted *wanted);

/* Marks bytes as present. Returns 0, EINVAL if they are not whole granules, ESTALE if the file's
 * data file has another epoch, or ENOENT if the inode has no record. */
int spw_cold_present(struct spw_inode *inode, uint64_t epoch, uint64_t offset, uint64_t length);

/* Fails all READs of bytes that are not present, for a while. is_all: first no byte of the data
 * file is present any more. Returns as spw_cold_present. */
int spw_cold_failed(struct spw_inode *inode, uint64_t epoch, bool is_all);

/* Lets READs be parked and spw_cold_next wait, from the start on and after spw_cold_close. */
void spw_cold_open(void);

/* Answers all parked READs with EAGAIN and ends the wait of spw_cold_next. Returns when they are
 * answered, or after two seconds. */
void spw_cold_close(void);

/* ---- residency.c ---- */

/* The place of a file's bytes: evicted, wanted, arrived. It uses neither Ganesha nor Python.
 *
 * The state of an inode that exists changes only here and in writer.c, under its `meta` and across
 * the call of the namespace. So C and the row agree on the epoch before anyone opens a data
 * file. */

/* Makes a file absent that the bucket has, and deletes its data file once that is durable. attr: of
 * the file afterwards. Returns 0, EBUSY if the file is open or not clean, or an errno. */
int spw_evict(struct spw_inode *inode, uint64_t content_version, struct spw_attr *attr);

/* Asks the namespace for the epoch of an inode, if it is not known. Returns whether it is known
 * now. It is not while another call has `meta`: a READ does not wait for an eviction. */
bool spw_settle(struct spw_inode *inode);

/* Takes what the namespace says of an epoch that is not known, as after an eviction without an
 * answer. While that is not known either, no descriptor is given: the epoch decides which data file
 * a writer gets. `meta` is held. */
void spw_settle_locked(struct spw_inode *inode);

/* Makes a file resident, all of whose bytes are on stable storage. attr: of the file afterwards.
 * Returns 0, ESTALE if the file has another epoch or version, or an errno. */
int spw_arrived(struct spw_inode *inode, uint64_t epoch, uint64_t content_version,
		struct spw_attr *attr);

/* Notes that verified bytes are in the data file, or that the bytes that clients wait for cannot be
 * had. is_all: nothing in the data file is believed any more. Return 0, ESTALE if the file has
 * another epoch or is resident, or an errno. */
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

/* ---- cold_requests.c ---- */

/* What the hydrator and the evictor ask over the control socket. No Ganesha: clients see no change
 * of it. */

/* Answers a request from SPW_CONTROL_EVICT on. Returns 0, EPERM for users other than root, ENOTSUP
 * for another operation, or an errno. */
int spw_cold_serve(uint32_t op, const struct spw_control_request *asked,
		   struct spw_control_reply *reply);

#endif
