/* The door of the NFS server: what is asked there becomes calls of the namespace. */
#ifndef SPILLWAY_DOORWAY_H
#define SPILLWAY_DOORWAY_H

#include "ganesha.h"

/* An export is made: opens the door as soon as the server is ready, unless it is opened for another. */
void spw_doorway_start(struct fsal_export *export);

/* An export goes: closes the door if it was opened for it. Returns when nothing of it runs. */
void spw_doorway_stop(const struct fsal_export *export);

#endif
