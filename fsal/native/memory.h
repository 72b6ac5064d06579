/* Has the process keep the memory of the buffers of READs and WRITEs while there are any. */
#ifndef SPILLWAY_MEMORY_H
#define SPILLWAY_MEMORY_H

/* To be called before the server has many threads: the arenas that there are stay. */
void spw_memory_keep(void);

/* Starts the thread that gives the memory back. Returns 0 or an errno. */
int spw_memory_start(void);

/* Notes that a buffer is in use. */
void spw_memory_used(void);

#endif
