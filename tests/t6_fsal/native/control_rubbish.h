/* Rubbish for the control socket: random bytes, and frames that are almost right. It is the same in
 * each run. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "control.h"

#define RANDOM_BYTES 10000000u

static uint64_t seed = 88172645463325252u;

static inline uint64_t next_random(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	return seed ^= seed << 17;
}

/* Makes a frame with names and groups of these lengths. Returns its length. */
static inline size_t make_frame(uint8_t *bytes, uint16_t op, uint32_t groups, uint32_t name,
				uint32_t name2)
{
	struct spw_control_head head = { .magic = SPW_CONTROL_MAGIC, .version = SPW_CONTROL_VERSION, .op = op };
	struct spw_control_body body = {
		.ino = 2, .group_count = groups, .name_len = name, .name2_len = name2,
	};

	head.length = (uint32_t)(sizeof(head) + sizeof(body) + groups * 4 + name + name2);
	memcpy(bytes, &head, sizeof(head));
	memcpy(bytes + sizeof(head), &body, sizeof(body));
	memset(bytes + sizeof(head) + sizeof(body), 'x', groups * 4 + name + name2);
	return head.length;
}

/* Makes random bytes, or a valid head before a body that may not be valid, cut or followed by
 * random bytes. Returns how many bytes. */
static inline size_t make_rubbish(uint8_t *bytes)
{
	size_t count = sizeof(struct spw_control_head) + next_random() % 300;
	uint64_t how = next_random();

	for (size_t i = 0; i < count; i++)
		bytes[i] = (uint8_t)(next_random() >> 24);
	if (how % 4 != 0) {
		(void)make_frame(bytes, (uint16_t)next_random(), next_random() % 4,
				 next_random() % 40, next_random() % 40);
		/* One bit of the frame is changed. */
		if (how % 8 != 1)
			bytes[next_random() % 184] ^= (uint8_t)(1u << how % 7);
	}
	return count;
}

/* Reads all bytes that a request claims to have, so that the sanitizer sees one too many. */
static inline uint64_t use(const struct spw_control_request *asked)
{
	const struct spw_request *request = &asked->request;
	uint64_t seen = asked->offset + asked->length;

	for (uint32_t i = 0; i < request->group_count; i++)
		seen += request->groups[i];
	for (uint32_t i = 0; i < request->name_len; i++)
		seen += (unsigned char)request->name[i];
	for (uint32_t i = 0; i < request->name2_len; i++)
		seen += (unsigned char)request->name2[i];
	return seen;
}
