/* Says how the C library's allocator treats the buffers of READs and WRITEs (mallopt(3)).
 *
 * Ganesha allocates and frees a buffer of up to 1 MiB for each READ. By default such memory goes back
 * to the kernel at once, and the next READ waits until the kernel has cleared other pages for it. That
 * is half of the processor time of a READ from the page cache. So the memory is kept, until there was
 * no READ or WRITE for a while. */
#include "memory.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

#include "thread.h"

#define BUFFER_MAX (4 << 20) /* bytes; larger blocks go back to the kernel as soon as they are freed */
/* Bytes that an arena keeps at its end. malloc_trim(3) shortens only the first arena, so this much of
 * each other one may stay resident when no client reads. */
#define KEPT_MAX (16 << 20)
/* Each arena keeps what its threads used at most. By default there may be eight for a processor. With
 * two for a processor, threads wait for each other: stat and unlink are 4 percent slower or more. */
#define ARENAS_MIN 8
#define ARENAS_PER_PROCESSOR 4
#define IDLE_SECONDS 10 /* and twice that at most */

static atomic_bool is_used;

void spw_memory_keep(void)
{
	long arenas = ARENAS_PER_PROCESSOR * sysconf(_SC_NPROCESSORS_ONLN);

	(void)mallopt(M_MMAP_THRESHOLD, BUFFER_MAX);
	(void)mallopt(M_TRIM_THRESHOLD, KEPT_MAX);
	(void)mallopt(M_ARENA_MAX, arenas > ARENAS_MIN ? (int)arenas : ARENAS_MIN);
}

static void *give_back(void *argument)
{
	struct timespec pause = { .tv_sec = IDLE_SECONDS };
	bool is_kept = false;

	(void)argument;
	for (;;) {
		(void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
		if (atomic_exchange_explicit(&is_used, false, memory_order_relaxed)) {
			is_kept = true;
		} else if (is_kept) {
			(void)malloc_trim(0);
			is_kept = false;
		}
	}
	return NULL;
}

int spw_memory_start(void)
{
	return spw_thread_start(give_back, NULL);
}

void spw_memory_used(void)
{
	/* A store each time would have the processors hand the cache line around. */
	if (!atomic_load_explicit(&is_used, memory_order_relaxed))
		atomic_store_explicit(&is_used, true, memory_order_relaxed);
}
