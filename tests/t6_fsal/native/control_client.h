/* A client of the control socket, for its tests: it dials, asks and hears answers. */
#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "control.h"

#undef NDEBUG

enum { ANSWER = sizeof(struct spw_control_answer) };

static const char *directory; /* of the socket */

static inline int dial(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval patience = { .tv_sec = 20 };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/" SPW_CONTROL_NAME, directory);
	assert(connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
	assert(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0);
	return fd;
}

static inline size_t make(uint8_t *bytes, uint64_t id, uint64_t ino)
{
	struct spw_control_head head = {
		.magic = SPW_CONTROL_MAGIC, .version = SPW_CONTROL_VERSION, .op = SPW_CONTROL_GETATTR, .id = id,
	};
	struct spw_control_body body = { .ino = ino, .name_len = 3, .offset = 1000, .length = id };

	head.length = sizeof(head) + sizeof(body) + 3;
	memcpy(bytes, &head, sizeof(head));
	memcpy(bytes + sizeof(head), &body, sizeof(body));
	memcpy(bytes + sizeof(head) + sizeof(body), "abc", 3);
	return head.length;
}

static inline void ask_of(int fd, uint64_t id, uint64_t ino, uint16_t op)
{
	uint8_t bytes[256];
	size_t length = make(bytes, id, ino);

	memcpy(bytes + offsetof(struct spw_control_head, op), &op, sizeof(op));
	assert(send(fd, bytes, length, MSG_NOSIGNAL) == (ssize_t)length);
}

static inline void ask(int fd, uint64_t id, uint64_t ino)
{
	ask_of(fd, id, ino, SPW_CONTROL_GETATTR);
}

/* Receives an answer. Returns false if the connection was closed. */
static inline bool hear(int fd, struct spw_control_answer *answer)
{
	ssize_t got = recv(fd, answer, ANSWER, MSG_WAITALL);

	assert(got >= 0 || errno == ECONNRESET); /* no time-out */
	return got == ANSWER;
}
