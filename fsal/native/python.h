/* The embedded interpreter. It is started once and called from any thread, without Ganesha. */
#ifndef SPILLWAY_PYTHON_H
#define SPILLWAY_PYTHON_H

#include "bridge.h"

/* The table that Python filled. */
extern struct spw_table spw_python;

/* Starts the interpreter of the virtual environment that `executable` belongs to, imports
 * fsal.entry and lets it fill the table from the configuration file. It must run before other
 * threads exist and after the last fork of the process. Returns 0, or -1 after a line on stderr
 * says why. */
int spw_python_start(const char *executable, const char *config_path);

/* Calls Python in this thread to answer requests. */
void spw_python_run(const struct spw_item *items, uint32_t count);

/* Has Python close the namespace, if it was started. No call of Python may come after it. */
void spw_python_stop(void);

#endif
