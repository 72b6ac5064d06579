/* Keeps which session of the hydrator is the present one, and which calls of it and before it run. */
#include "session.h"

#include <errno.h>
#include <pthread.h>

#define PAST 16u /* a call of a dead hydrator waits in the door while fewer have followed */

static struct {
	pthread_mutex_t lock;
	uint64_t numbers[PAST]; /* of the present session, at turn % PAST, and of those before it */
	uint64_t turn;          /* number of sessions so far; 0: there was none */
	unsigned int running;   /* calls of the present session */
	unsigned int older;     /* calls of earlier ones */
} sessions = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int find_locked(uint64_t session)
{
	for (uint64_t back = 0; back < PAST && back < sessions.turn; back++)
		if (sessions.numbers[(sessions.turn - back) % PAST] == session)
			return back == 0 ? 0 : ESTALE;
	return ENOENT;
}

int spw_session_take(uint64_t session)
{
	int rc;

	pthread_mutex_lock(&sessions.lock);
	rc = find_locked(session);
	if (rc == ENOENT) {
		sessions.numbers[++sessions.turn % PAST] = session;
		sessions.older += sessions.running;
		sessions.running = 0;
		rc = 0;
	}
	if (rc == 0 && sessions.older > 0)
		rc = EBUSY;
	pthread_mutex_unlock(&sessions.lock);
	return rc;
}

int spw_session_begin(uint64_t session, uint64_t *turn)
{
	int rc;

	pthread_mutex_lock(&sessions.lock);
	rc = find_locked(session);
	*turn = sessions.turn;
	if (rc == 0)
		sessions.running++;
	pthread_mutex_unlock(&sessions.lock);
	return rc == 0 ? 0 : ESTALE;
}

void spw_session_end(uint64_t turn)
{
	pthread_mutex_lock(&sessions.lock);
	if (turn == sessions.turn)
		sessions.running--;
	else
		sessions.older--;
	pthread_mutex_unlock(&sessions.lock);
}
