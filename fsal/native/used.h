/* Counts what the process uses of what is limited: threads that answer calls, and descriptors.
 *
 * Another process cannot: Ganesha 4.3 gives its threads no names that the kernel knows, and who may
 * not trace the server may not look at its descriptors (proc(5)).
 */
#ifndef SPILLWAY_USED_H
#define SPILLWAY_USED_H

#include <stdint.h>

/* 0 stands for a number that is not known. */
struct spw_used {
	uint32_t threads; /* that answer calls, or did in the last 31 s (ntirpc, src/work_pool.c) */
	uint32_t descriptors;
	uint64_t descriptors_most;
};

/* Must be called before Ganesha starts the threads that answer calls. */
void spw_used_start(void);

void spw_used(struct spw_used *used);

#endif
