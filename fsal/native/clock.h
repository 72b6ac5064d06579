/* Converts a time to one number, and tells the time. */
#ifndef SPILLWAY_CLOCK_H
#define SPILLWAY_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Returns nanoseconds since 1970. A time that 64 bits cannot hold (before 1677, after 2262) is cut
 * to the nearest one that they can. */
static inline int64_t spw_ns(const struct timespec *time)
{
	int64_t ns;

	if (__builtin_mul_overflow((int64_t)time->tv_sec, 1000000000LL, &ns) ||
	    __builtin_add_overflow(ns, (int64_t)time->tv_nsec, &ns))
		return time->tv_sec < 0 ? INT64_MIN : INT64_MAX;
	return ns;
}

/* Return the nanoseconds and the milliseconds of a clock that is never set. */
static inline uint64_t spw_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline uint64_t spw_clock_ms(void)
{
	return spw_clock_ns() / 1000000;
}

#endif
