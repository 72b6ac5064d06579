/* What else a client asks for in the compound that Ganesha works on. */
#ifndef SPILLWAY_COMPOUND_H
#define SPILLWAY_COMPOUND_H

#include <stdbool.h>

#include "closing.h"
#include "ganesha.h"

/* Returns whether the file that PUTFH names is closed later in the same compound, or downgraded to
 * reading. Call it only below an export's wire_to_host: only PUTFH calls that.
 * (Protocols/NFS/nfs4_op_putfh.c, nfs4_mds_putfh.) handle: what wire_to_host was given. */
bool spw_compound_closes(const struct gsh_buffdesc *handle, struct spw_close *close);

#endif
