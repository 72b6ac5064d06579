/* Answers requests of the hydrator and the evictor. */
#include "cold_requests.h"

#include <errno.h>

#include "bridge.h"
#include "cold.h"
#include "inode.h"
#include "namespace.h"
#include "residency.h"
#include "session.h"

#define WAIT_MAX_MS 1000u /* a worker of the door waits for so long */

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

static int wanted(const struct spw_request *request, struct spw_door_reply *reply)
{
	uint32_t wait_ms = request->ino2 < WAIT_MAX_MS ? (uint32_t)request->ino2 : WAIT_MAX_MS;
	struct spw_wanted range = { 0 };
	int rc = spw_session_take(request->ino);

	if (rc == 0)
		rc = spw_cold_next(request->ino, wait_ms, &range);
	reply->attr = range.attr;
	reply->offset = range.offset;
	reply->length = range.length;
	return rc;
}

static int arrived(struct spw_inode *inode, const struct spw_door_request *asked,
		   struct spw_attr *attr)
{
	uint64_t turn;
	int rc = spw_session_begin(asked->offset, &turn);

	if (rc != 0)
		return rc;
	rc = spw_arrived(inode, asked->request.ino2, asked->request.cookie, attr);
	spw_session_end(turn);
	return rc;
}

int spw_cold_serve(uint32_t op, const struct spw_door_request *asked,
		   struct spw_door_reply *reply)
{
	const struct spw_request *request = &asked->request;
	struct spw_inode *inode;
	int rc;

	if (op < SPW_DOOR_EVICT || op > SPW_DOOR_FAILED)
		return ENOTSUP;
	if (request->uid != 0)
		return EPERM;
	if (op == SPW_DOOR_WANTED)
		return wanted(request, reply);
	rc = hold(request->ino, &inode);
	if (rc != 0)
		return rc;
	if (op == SPW_DOOR_EVICT)
		rc = spw_evict(inode, request->cookie, &reply->attr);
	else if (op == SPW_DOOR_PRESENT)
		rc = spw_present(inode, request->ino2, asked->offset, asked->length);
	else if (op == SPW_DOOR_ARRIVED)
		rc = arrived(inode, asked, &reply->attr);
	else
		rc = spw_failed(inode, request->ino2, asked->length == SPW_DOOR_ALL_BYTES);
	spw_inode_put(inode);
	return rc;
}
