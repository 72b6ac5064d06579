/* The hydrator's present session. A door job continues after its peer was killed: an ARRIVED of a
 * dead hydrator must not commit while its successor writes to the same data file, because clients
 * may write to a file that has arrived.
 *
 * A session is a number of the hydrator's choice, and never comes back. Without Ganesha and Python.
 */
#ifndef SPILLWAY_SESSION_H
#define SPILLWAY_SESSION_H

#include <stdint.h>

/* Makes a session the present one. Returns 0, EBUSY while calls of an earlier session run, or ESTALE
 * if another session has followed this one. After EBUSY it is the present one too. */
int spw_session_take(uint64_t session);

/* Begins a call that only the present session may make. *turn: for spw_session_end. Returns 0, or
 * ESTALE if the session is not the present one. */
int spw_session_begin(uint64_t session, uint64_t *turn);
void spw_session_end(uint64_t turn);

#endif
