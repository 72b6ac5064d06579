/* What else a client asks for in the compound that Ganesha works on. */
#ifndef SPILLWAY_COMPOUND_H
#define SPILLWAY_COMPOUND_H

#include <stdbool.h>

#include "closing.h"
#include "ganesha.h"

/* A place in a compound. All zero: its beginning. */
struct spw_compound_place {
	unsigned int next;  /* operation */
	bool is_ours;       /* the current file is that of the handle */
	bool is_changed;    /* an operation before it may change the file */
	bool is_opened;     /* an operation before it has a file open for writing */
};

/* Finds the next CLOSE, or OPEN_DOWNGRADE to reading, of the file that PUTFH names, and moves the
 * place behind it. Returns whether there is one. Call it only below an export's wire_to_host for
 * NFSv4: only PUTFH calls that (Protocols/NFS/nfs4_op_putfh.c, nfs4_mds_putfh). handle: what
 * wire_to_host was given. */
bool spw_compound_next_close(const struct gsh_buffdesc *handle, struct spw_compound_place *place,
			     struct spw_close *close);

#endif
