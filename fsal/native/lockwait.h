/* LOCKs that wait for what another owner has locked. */
#ifndef SPILLWAY_LOCKWAIT_H
#define SPILLWAY_LOCKWAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "closing.h"

/* ---- lockwait.c ---- */

/* LOCKs whose answer comes later, because now it would be "denied".
 *
 * Ganesha 4.3 denies a LOCK of what another owner has locked before it asks us, and tells no client
 * when that is free. Linux asks again after 1, 2, 4, ... 30 s, and each time finds the lock taken if
 * others take and release it all the time. So a LOCK of a process that waits (READW_LT, WRITEW_LT)
 * is held back in the PUTFH before it, in the same compound, for as long as another owner has the
 * range, and for SPW_LOCK_WAIT_MS at most: a lock that is held for longer is denied then. Nothing of
 * Ganesha's is held meanwhile but the compound's own thread, export, lease and slot.
 *
 * Who gets a lock is Ganesha's to say. What is kept here repeats its list of locks; where that is not
 * complete, an answer comes as early as without us. */

#ifndef SPW_LOCK_WAIT_MS
#define SPW_LOCK_WAIT_MS 2000u
#endif
/* Each LOCK that waits takes a thread: a sixteenth of those that Ganesha has at least
 * (gateway/nfssettings.py). One more is answered at once. */
#ifndef SPW_LOCK_WAITERS_MAX
#define SPW_LOCK_WAITERS_MAX 32u
#endif

/* A lock that an owner has, or asks for. */
struct spw_lock {
	uint64_t ino;
	uint64_t first; /* byte */
	uint64_t last;  /* byte */
	uint64_t owner; /* spw_lock_owner; unless is_by_state */
	char stateid[SPW_STATEID_BYTES]; /* of the owner's locks on this file; unless it asks as a new one */
	bool is_by_state; /* who asks for it is known by the stateid alone */
	bool is_exclusive;
};

/* Prepares the places of those that wait. Call it before any other function of this header. */
void spw_lockwait_start(void);

/* Returns the number of an owner. */
uint64_t spw_lock_owner(uint64_t client_id, const char *name, uint32_t length);

/* Notes that an owner has a lock, with what it asked for: it replaces what the owner had of the
 * range. After a downgrade others may need to wait no longer. */
void spw_lock_granted(const struct spw_lock *lock);

/* Notes that an owner has none of a range any more, and wakes those that waited for it. */
void spw_lock_released(const struct spw_lock *lock);

/* Notes that the locks of a stateid on a file are gone, whether or not each was released. */
void spw_lock_forgotten(uint64_t ino, const char *stateid);

/* Waits while the lock would be denied, in the order in which they came of those that wait for the
 * same range. An owner does not wait for its own locks. is_asked: whether the client can still be
 * answered; it is asked ten times a second, in the thread that waits and under a lock. */
void spw_lock_wait(const struct spw_lock *wanted, bool (*is_asked)(void));

#endif
