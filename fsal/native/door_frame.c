/* Finds frames of the door in a stream, reads them and writes them. */
#include "door.h"

#include <errno.h>
#include <string.h>

_Static_assert(sizeof(struct spw_door_head) == 24 && sizeof(struct spw_door_body) == 96 &&
	       sizeof(struct spw_door_answer) == 168, "gateway/rpc/frames.py has these sizes");
_Static_assert(sizeof(struct spw_door_head) + sizeof(struct spw_door_body) +
	       SPW_DOOR_GROUPS * sizeof(uint32_t) <= SPW_DOOR_FRAME_BYTES, "a frame holds its groups");

enum spw_door_verdict spw_door_find(const uint8_t *bytes, size_t count, size_t *length)
{
	struct spw_door_head head;

	if (count < sizeof(head))
		return SPW_DOOR_PARTIAL;
	memcpy(&head, bytes, sizeof(head));
	if (head.magic != SPW_DOOR_MAGIC || head.length < sizeof(head) ||
	    head.length > SPW_DOOR_FRAME_BYTES)
		return SPW_DOOR_RUBBISH;
	*length = head.length;
	return count < head.length ? SPW_DOOR_PARTIAL : SPW_DOOR_WHOLE;
}

int spw_door_decode(const uint8_t *frame, size_t length, struct spw_door_request *asked)
{
	const uint8_t *rest = frame + sizeof(struct spw_door_head) + sizeof(struct spw_door_body);
	struct spw_request *request = &asked->request;
	struct spw_door_head head;
	struct spw_door_body body;

	memcpy(&head, frame, sizeof(head));
	if (head.version != SPW_DOOR_VERSION)
		return EPROTONOSUPPORT;
	if (length < sizeof(head) + sizeof(body))
		return EBADMSG;
	memcpy(&body, frame + sizeof(head), sizeof(body));
	if (body.group_count > SPW_DOOR_GROUPS || body.name_len > SPW_DOOR_NAME_BYTES ||
	    body.name2_len > SPW_DOOR_NAME_BYTES || (body.flags & ~SPW_FOR_GATEWAY) != 0)
		return EBADMSG;
	if (length != sizeof(head) + sizeof(body) + body.group_count * sizeof(uint32_t) +
		      body.name_len + body.name2_len)
		return EBADMSG;
	*request = (struct spw_request){
		.ino = body.ino,
		.ino2 = body.ino2,
		.cookie = body.change,
		.set = body.set,
		.uid = body.uid,
		.gid = body.gid,
		.groups = (const uint32_t *)(const void *)rest,
		.group_count = body.group_count,
		.name_len = body.name_len,
		.name2_len = body.name2_len,
		.flags = body.flags,
	};
	asked->offset = body.offset;
	asked->length = body.length;
	rest += body.group_count * sizeof(uint32_t);
	request->name = (const char *)rest;
	request->name2 = (const char *)rest + body.name_len;
	return 0;
}

void spw_door_encode(const struct spw_door_head *asked, int status,
		     const struct spw_door_reply *reply, struct spw_door_answer *answer)
{
	*answer = (struct spw_door_answer){
		.head = *asked,
		.status = status,
	};
	answer->head.version = SPW_DOOR_VERSION;
	answer->head.length = sizeof(*answer);
	if (reply == NULL)
		return;
	answer->attr = reply->attr;
	answer->head.length += reply->data_bytes;
	answer->offset = reply->offset;
	answer->length = reply->length;
}
