/* The sealer: the thread that seals queued files and reclaims queued inodes without a name. */
#ifndef SPILLWAY_SEAL_H
#define SPILLWAY_SEAL_H

/* Starts the thread that seals and reclaims. Returns 0 or an errno. */
int spw_sealer_start(void);

#endif
