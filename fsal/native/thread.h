/* Starts threads that run as long as the process. */
#ifndef SPILLWAY_THREAD_H
#define SPILLWAY_THREAD_H

#include <pthread.h>

/* Starts a thread that is never joined. Returns 0 or an errno. */
static inline int spw_thread_start(void *(*run)(void *), void *argument)
{
	pthread_t thread;
	int rc = pthread_create(&thread, NULL, run, argument);

	if (rc == 0)
		pthread_detach(thread);
	return rc;
}

#endif
