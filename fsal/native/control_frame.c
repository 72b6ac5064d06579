/* Frames of the control socket: found in a stream, read and written. */
#include "control.h"

#include <errno.h>
#include <string.h>

_Static_assert(sizeof(struct spw_control_head) == 24 && sizeof(struct spw_control_body) == 96 &&
	       sizeof(struct spw_control_answer) == 168, "gateway/rpc/frames.py has these sizes");
_Static_assert(sizeof(struct spw_control_head) + sizeof(struct spw_control_body) +
	       SPW_CONTROL_GROUPS * sizeof(uint32_t) <= SPW_CONTROL_FRAME_BYTES, "a frame holds its groups");

enum spw_control_verdict spw_control_find(const uint8_t *bytes, size_t count, size_t *length)
{
	struct spw_control_head head;

	if (count < sizeof(head))
		return SPW_CONTROL_PARTIAL;
	memcpy(&head, bytes, sizeof(head));
	if (head.magic != SPW_CONTROL_MAGIC || head.length < sizeof(head) ||
	    head.length > SPW_CONTROL_FRAME_BYTES)
		return SPW_CONTROL_RUBBISH;
	*length = head.length;
	return count < head.length ? SPW_CONTROL_PARTIAL : SPW_CONTROL_WHOLE;
}

int spw_control_decode(const uint8_t *frame, size_t length, struct spw_control_request *asked)
{
	const uint8_t *rest = frame + sizeof(struct spw_control_head) + sizeof(struct spw_control_body);
	struct spw_request *request = &asked->request;
	struct spw_control_head head;
	struct spw_control_body body;

	memcpy(&head, frame, sizeof(head));
	if (head.version != SPW_CONTROL_VERSION)
		return EPROTONOSUPPORT;
	if (length < sizeof(head) + sizeof(body))
		return EBADMSG;
	memcpy(&body, frame + sizeof(head), sizeof(body));
	if (body.group_count > SPW_CONTROL_GROUPS || body.name_len > SPW_CONTROL_NAME_BYTES ||
	    body.name2_len > SPW_CONTROL_NAME_BYTES || (body.flags & ~SPW_FOR_GATEWAY) != 0)
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

void spw_control_encode(const struct spw_control_head *asked, int status,
			const struct spw_control_reply *reply, struct spw_control_answer *answer)
{
	*answer = (struct spw_control_answer){
		.head = *asked,
		.status = status,
	};
	answer->head.version = SPW_CONTROL_VERSION;
	answer->head.length = sizeof(*answer);
	if (reply == NULL)
		return;
	answer->attr = reply->attr;
	answer->head.length += reply->data_bytes;
	answer->offset = reply->offset;
	answer->length = reply->length;
}
