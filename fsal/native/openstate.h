/* Opens: what we keep of Ganesha's states, shares, and the operations that open and close a file. */
#ifndef SPILLWAY_OPENSTATE_H
#define SPILLWAY_OPENSTATE_H

#include <stdbool.h>

#include "closing.h"
#include "ganesha.h"
#include "inode.h"
#include "lockwait.h"
#include "statistics.h"

/* ---- openstate.c ---- */

/* Open states: what Ganesha's state of an open has of ours, from alloc_state to free_state. */

struct spw_state {
	struct state_t state;
	fsal_openflags_t openflags; /* of its open; FSAL_O_CLOSED: none */
	struct spw_inode *inode; /* that it has open, with a handle on it; NULL: none */
	struct spw_closing closing;
	struct spw_opening opening; /* while it has an inode */
	struct spw_state *next; /* of the deleted states that are held */
	struct spw_opened opened;
};

static inline struct spw_state *spw_state_of(struct state_t *state)
{
	return container_of(state, struct spw_state, state);
}

/* Sets the operations of an export that make and free states. */
void spw_state_ops(struct export_ops *ops);

/* Makes a state for Ganesha, with room for what we keep of its open. */
struct state_t *spw_alloc_state(struct fsal_export *export, enum state_type type,
				struct state_t *related);

/* Closes a state, if it is open, and frees it. */
void spw_free_state(struct state_t *state);

/* Notes that a state has an inode open. The caller has changed the share, holds the descriptor and
 * has begun the writer. */
void spw_state_opened(struct state_t *state, struct spw_inode *inode, fsal_openflags_t openflags);

/* Makes the writer that was just begun that of an open state, which has one at the most. */
void spw_state_give_writer(struct state_t *state);

/* Ends the writer of an open state, unless a CLOSE that waits has ended it. */
void spw_state_end_writer(struct state_t *state);

/* Ends the open of a state, if it is open: share, writer, descriptor. */
void spw_state_closed(struct state_t *state);

/* Holds a state, if Ganesha is about to delete it, until no request has it any more. */
void spw_state_deleted(struct state_t *state);

/* ---- lock.c ---- */

/* Byte-range locks, which Ganesha keeps. */

/* Finds what lock a process waits for, if the compound that Ganesha works on asks for one and for
 * nothing else: SEQUENCE, PUTFH, LOCK, as Linux does. In NFSv4.0 a client asks for nothing more as the
 * same owner before it has the answer (RFC 7530 section 9.1.7), which must not come late then. Returns
 * whether there is one. Call it where spw_compound_next_close may be called (closing.h). ino: of the
 * file that PUTFH names. */
bool spw_lock_is_waited_for(uint64_t ino, struct spw_lock *wanted);

/* Returns whether the client of the request is still connected. A server that stops closes all
 * connections before it waits for its threads. */
bool spw_lock_is_asked(void);

/* Fills the operation on locks. */
void spw_lock_ops(struct fsal_obj_ops *ops);

/* ---- share.c ---- */

/* Share reservations (RFC 8881 section 9.7): which opens and accesses exclude each other. */

/* Checks whether the shares of others allow an access without an open of its own. */
fsal_status_t spw_share_check(struct spw_inode *inode, fsal_openflags_t access, bool bypass);

/* Checks and changes the reservation of an open in one step. */
fsal_status_t spw_share_change(struct spw_inode *inode, fsal_openflags_t from, fsal_openflags_t to);

/* ---- open.c ---- */

/* The operations that Ganesha calls to create, open, reopen and close a file. */

/* Fills the operations on opens. */
void spw_open_ops(struct fsal_obj_ops *ops);

#endif
