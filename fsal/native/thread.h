/* Starts threads that run as long as the process, and lets them wait by a clock that is never set. */
#ifndef SPILLWAY_THREAD_H
#define SPILLWAY_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

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
