/* Tests of control_frame.c: bytes that come over the control socket are believed only as far as
 * they were checked. Each frame is in memory of exactly its size, so that the sanitizer sees a read
 * of one byte too many. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control_rubbish.h"

#undef NDEBUG

static volatile uint64_t seen;

/* Takes a frame as the server does. Returns whether it was a request. */
static bool take(const uint8_t *bytes, size_t count)
{
	uint8_t *exact = malloc(count == 0 ? 1 : count);
	struct spw_control_request request;
	size_t length = 0;
	bool is_request = false;

	memcpy(exact, bytes, count);
	if (spw_control_find(exact, count, &length) == SPW_CONTROL_WHOLE) {
		uint8_t *frame = malloc(length);

		assert(length <= count && length >= sizeof(struct spw_control_head));
		memcpy(frame, exact, length);
		is_request = spw_control_decode(frame, length, &request) == 0;
		if (is_request)
			seen += use(&request);
		free(frame);
	}
	free(exact);
	return is_request;
}

static void every_truncation_is_partial(void)
{
	static uint8_t bytes[SPW_CONTROL_FRAME_BYTES];
	size_t length, found;

	for (uint16_t op = SPW_CONTROL_LOOKUP; op <= SPW_CONTROL_EXPORTS; op++) {
		length = make_frame(bytes, op, op, 20u + op, op % 3 * 100);
		assert(take(bytes, length));
		for (size_t count = 0; count < length; count++) {
			assert(!take(bytes, count));
			assert(spw_control_find(bytes, count, &found) == SPW_CONTROL_PARTIAL);
		}
		/* The frame claims to be shorter than it is. */
		for (uint32_t count = 0; count < length; count++) {
			memcpy(bytes + offsetof(struct spw_control_head, length), &count, 4);
			assert(!take(bytes, length));
		}
	}
}

static void bounds_hold(void)
{
	static uint8_t bytes[2 * SPW_CONTROL_FRAME_BYTES];
	size_t length;

	length = make_frame(bytes, 1, 0, 1, 0);
	bytes[offsetof(struct spw_control_head, magic)]++;
	assert(spw_control_find(bytes, length, &length) == SPW_CONTROL_RUBBISH);
	assert(take(bytes, make_frame(bytes, 1, SPW_CONTROL_GROUPS, 0, 0)));
	assert(!take(bytes, make_frame(bytes, 1, SPW_CONTROL_GROUPS + 1, 0, 0)));
	assert(take(bytes, make_frame(bytes, 1, 0, SPW_CONTROL_NAME_BYTES, 0)));
	assert(!take(bytes, make_frame(bytes, 1, 0, SPW_CONTROL_NAME_BYTES + 1, 0)));
	assert(!take(bytes, make_frame(bytes, 1, 0, 0, SPW_CONTROL_NAME_BYTES + 1)));
	length = make_frame(bytes, 1, 0, SPW_CONTROL_NAME_BYTES, SPW_CONTROL_NAME_BYTES);
	assert(length > SPW_CONTROL_FRAME_BYTES);
	assert(spw_control_find(bytes, length, &length) == SPW_CONTROL_RUBBISH);
}

static void another_version_is_told(void)
{
	static uint8_t bytes[SPW_CONTROL_FRAME_BYTES];
	size_t length = make_frame(bytes, 1, 0, 1, 0), found;
	struct spw_control_request request;

	bytes[offsetof(struct spw_control_head, version)]++;
	assert(spw_control_find(bytes, length, &found) == SPW_CONTROL_WHOLE && found == length);
	assert(spw_control_decode(bytes, length, &request) == EPROTONOSUPPORT);
}

static void ranges_are_passed_on(void)
{
	static uint8_t bytes[SPW_CONTROL_FRAME_BYTES];
	size_t length = make_frame(bytes, SPW_CONTROL_PRESENT, 0, 0, 0);
	struct spw_control_reply reply = {
		.attr.ino = 3, .offset = 4, .length = UINT64_MAX, .data_bytes = 5,
	};
	struct spw_control_head head = { .magic = SPW_CONTROL_MAGIC, .id = 9 };
	uint64_t range[2] = { 1ull << 40, UINT64_MAX };
	struct spw_control_request request;
	struct spw_control_answer answer;

	memcpy(bytes + sizeof(head) + offsetof(struct spw_control_body, offset), range, sizeof(range));
	assert(spw_control_decode(bytes, length, &request) == 0);
	assert(request.offset == range[0] && request.length == range[1]);
	spw_control_encode(&head, 0, &reply, &answer);
	assert(answer.attr.ino == 3 && answer.offset == 4 && answer.length == UINT64_MAX);
	assert(answer.head.length == sizeof(answer) + 5);
	spw_control_encode(&head, EBUSY, NULL, &answer);
	assert(answer.attr.ino == 0 && answer.offset == 0 && answer.length == 0);
	assert(answer.head.length == sizeof(answer));
}

static void rubbish_harms_nothing(void)
{
	static uint8_t bytes[SPW_CONTROL_FRAME_BYTES];
	size_t spent = 0, requests = 0;

	while (spent < RANDOM_BYTES) {
		size_t count = make_rubbish(bytes);

		requests += take(bytes, count);
		spent += count;
	}
	assert(requests > 1000);
}

int main(void)
{
	every_truncation_is_partial();
	bounds_hold();
	another_version_is_told();
	ranges_are_passed_on();
	rubbish_harms_nothing();
	puts("all passed");
	return 0;
}
