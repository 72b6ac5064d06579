/* Makes Ganesha let go of files that lost their last name through the door.
 *
 * A file without a name is reclaimed with its last handle, and an entry of Ganesha's cache is a
 * handle. Ganesha drops the entry of a file by itself only when a client removes the name.
 */
#ifndef SPILLWAY_RELEASE_H
#define SPILLWAY_RELEASE_H

#include <stdint.h>

#include "ganesha.h"

/* Drops the entry of a file without a name, now or after its last close. Must not be called inside
 * an operation that Ganesha called. */
void spw_release(const struct fsal_up_vector *up, uint64_t ino);

/* Tries again for files that were in use. Call it once a second. */
void spw_release_again(const struct fsal_up_vector *up);

/* Forgets the files that are still in use: the next start reclaims them. */
void spw_release_end(void);

#endif
