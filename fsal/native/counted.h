/* Operations of Ganesha that are counted: each calls the plugin's own one. */
#ifndef SPILLWAY_COUNTED_H
#define SPILLWAY_COUNTED_H

#include <stdint.h>

#include "ganesha.h"
#include "statistics.h"

/* Counts an operation that is about to be answered with a status. Afterwards its client may see the
 * count. began_ns: spw_clock_ns() when it began; bytes: read or written, if it is no error. Returns the status. */
fsal_status_t spw_counted(enum spw_counted kind, uint64_t began_ns, fsal_status_t status,
			  uint64_t bytes);

/* Puts a counted operation before each of a table, except READ and WRITE, which are counted when
 * they are answered (io.c). */
void spw_counted_ops(struct fsal_obj_ops *ops);

#endif
