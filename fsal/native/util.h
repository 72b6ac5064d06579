/* What any file may use: times, the hash of a name, threads. */
#ifndef SPILLWAY_UTIL_H
#define SPILLWAY_UTIL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* ---- times ---- */

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

/* ---- the hash of a name ---- */

/* Returns the FNV-1a hash. seed: what else to hash; 0 for the name alone. */
static inline uint64_t spw_hash(uint64_t seed, const char *name, uint32_t length)
{
	uint64_t value = 14695981039346656037u ^ seed;

	for (uint32_t i = 0; i < length; i++)
		value = (value ^ (unsigned char)name[i]) * 1099511628211u;
	return value;
}

/* ---- threads ---- */

/* Starts threads that run as long as the process, and lets them wait by a clock that is never set. */

/* Starts a thread that is never joined. Returns 0 or an errno. */
static inline int spw_thread_start(void *(*run)(void *), void *argument)
{
	pthread_t thread;
	int rc = pthread_create(&thread, NULL, run, argument);

	if (rc == 0)
		pthread_detach(thread);
	return rc;
}

/* Prepares a condition for spw_wait_until. With the monotonic clock, a step of the wall clock
 * neither ends nor prolongs a wait. */
static inline void spw_condition_start(pthread_cond_t *condition)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(condition, &attributes);
	pthread_condattr_destroy(&attributes);
}

/* Waits until a time of spw_clock_ms. Returns false when the time is over. */
static inline bool spw_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t due_ms)
{
	struct timespec until = { .tv_sec = (time_t)(due_ms / 1000),
				  .tv_nsec = (long)(due_ms % 1000) * 1000000 };

	return pthread_cond_timedwait(condition, lock, &until) == 0;
}

#endif
