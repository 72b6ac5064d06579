/* The embedded interpreter: started once, called from any thread. Knows nothing of Ganesha. */
#ifndef SPILLWAY_PYTHON_H
#define SPILLWAY_PYTHON_H

#include "bridge.h"

/* The table that Python filled. */
extern struct spw_table spw_python;

/* Starts the interpreter of the virtual environment that `executable` belongs to, imports
 * fsal.entry and lets it fill the table from the configuration file. Must run before other threads
 * exist and after the process has forked for the last time.
 * Returns 0, or -1 after a line on stderr says why. */
int spw_python_start(const char *executable, const char *config_path);

/* Has requests answered, in this thread. */
void spw_python_run(const struct spw_item *items, uint32_t count);

#endif
