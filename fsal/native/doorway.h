/* The door of the NFS server: requests at the door become calls of the namespace. */
#ifndef SPILLWAY_DOORWAY_H
#define SPILLWAY_DOORWAY_H

#include "ganesha.h"

/* Must be called when an export is made. Opens the door as soon as the server is ready, unless it
 * is open for another export. */
void spw_doorway_start(struct fsal_export *export);

/* Must be called when an export goes. Closes the door if it was opened for this export, and returns
 * when nothing of it runs. */
void spw_doorway_stop(const struct fsal_export *export);

#endif
