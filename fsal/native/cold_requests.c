/* Server of the requests of the hydrator, the evictor and the scrub. */
#include "cold.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "bytes.h"

#define PAST 16u /* a call of a dead hydrator waits for a worker while fewer have followed */
#define REASON_BYTES 512u
#define WAIT_MAX_MS 1000u /* a worker of the control socket waits for so long */

/* ---- the hydrator's present session ---- */

/* A job of the control socket continues after its peer was killed: an ARRIVED of a dead hydrator
 * must not commit while its successor writes to the same data file, because clients may write to a
 * file that has arrived. A session is a number of the hydrator's choice, and never comes back. */
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

/* Makes a session the present one. Returns 0, EBUSY while calls of an earlier session run, or
 * ESTALE if another session has followed this one. After EBUSY it is the present one too. */
static int session_take(uint64_t session)
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

/* Begins a call that only the present session may make. *turn: for session_end. Returns 0, or
 * ESTALE if the session is not the present one. */
static int session_begin(uint64_t session, uint64_t *turn)
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

static void session_end(uint64_t turn)
{
	pthread_mutex_lock(&sessions.lock);
	if (turn == sessions.turn)
		sessions.running--;
	else
		sessions.older--;
	pthread_mutex_unlock(&sessions.lock);
}

/* ---- requests ---- */

/* Finds the object of an inode, or makes it, and takes one more handle on it. Returns 0 or an
 * errno. */
static int hold(uint64_t ino, struct spw_inode **inode)
{
	uint64_t asked = spw_asked();
	struct spw_attr attr;
	int rc;

	*inode = spw_inode_find(ino);
	if (*inode != NULL)
		return 0;
	rc = spw_namespace()->getattr(ino, &attr);
	if (rc == 0 && (attr.nlink == 0 || attr.kind != SPW_REGULAR))
		rc = ESTALE;
	if (rc == 0)
		*inode = spw_inode_get(&attr, asked);
	return rc;
}

static int wanted(const struct spw_request *request, struct spw_control_reply *reply)
{
	uint32_t wait_ms = request->ino2 < WAIT_MAX_MS ? (uint32_t)request->ino2 : WAIT_MAX_MS;
	struct spw_wanted range = { 0 };
	int rc = session_take(request->ino);

	if (rc == 0)
		rc = spw_cold_next(request->ino, wait_ms, &range);
	reply->attr = range.attr;
	reply->offset = range.offset;
	reply->length = range.length;
	return rc;
}

static int arrived(struct spw_inode *inode, const struct spw_control_request *asked,
		   struct spw_attr *attr)
{
	uint64_t turn;
	int rc = session_begin(asked->offset, &turn);

	if (rc != 0)
		return rc;
	rc = spw_arrived(inode, asked->request.ino2, asked->request.cookie, attr);
	session_end(turn);
	return rc;
}

static int lost(struct spw_inode *inode, const struct spw_control_request *asked,
		struct spw_attr *attr)
{
	const struct spw_request *request = &asked->request;
	char reason[REASON_BYTES];
	struct spw_loss loss = {
		.reason = reason,
		.content_version = request->cookie,
		.is_not_stored = asked->offset == SPW_BYTES_GONE,
	};
	size_t length = request->name_len < sizeof(reason) ? request->name_len : sizeof(reason) - 1;

	if (asked->offset >= SPW_FINDINGS || length == 0)
		return EINVAL;
	memcpy(reason, request->name, length);
	reason[length] = '\0';
	return spw_finding(inode, request->ino2, (enum spw_finding)asked->offset, &loss, attr);
}

int spw_cold_serve(uint32_t op, const struct spw_control_request *asked,
		   struct spw_control_reply *reply)
{
	const struct spw_request *request = &asked->request;
	struct spw_inode *inode;
	int rc;

	if ((op < SPW_CONTROL_EVICT || op > SPW_CONTROL_FAILED) && op != SPW_CONTROL_LOST)
		return ENOTSUP;
	if (request->uid != 0)
		return EPERM;
	if (op == SPW_CONTROL_WANTED)
		return wanted(request, reply);
	rc = hold(request->ino, &inode);
	if (rc != 0)
		return rc;
	if (op == SPW_CONTROL_EVICT)
		rc = spw_evict(inode, request->cookie, &reply->attr);
	else if (op == SPW_CONTROL_PRESENT)
		rc = spw_present(inode, request->ino2, asked->offset, asked->length);
	else if (op == SPW_CONTROL_ARRIVED)
		rc = arrived(inode, asked, &reply->attr);
	else if (op == SPW_CONTROL_LOST)
		rc = lost(inode, asked, &reply->attr);
	else
		rc = spw_failed(inode, request->ino2, asked->length == SPW_CONTROL_ALL_BYTES);
	spw_inode_put(inode);
	return rc;
}
