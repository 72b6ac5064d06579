/* Tests what random bytes over the control socket do to it and to other peers. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control_client.h"
#include "control_rubbish.h"

#undef NDEBUG

enum { WORKERS = 13, LINGERING = 8, GOOD = 7, SLOW = 4242, FILES = 256 };

static atomic_int inside, requests;
static atomic_bool held = true;
static atomic_ullong seen;

static void short_nap(void)
{
	usleep(1000);
}

static int serve(uint32_t op, const struct spw_control_request *asked, struct spw_control_reply *reply)
{
	atomic_fetch_add(&seen, use(asked));
	atomic_fetch_add(&requests, 1);
	atomic_fetch_add(&inside, 1);
	while (asked->request.ino == SLOW && atomic_load(&held))
		short_nap();
	atomic_fetch_sub(&inside, 1);
	reply->attr.ino = asked->request.ino + op;
	return 0;
}

static int tell(uint32_t op, struct spw_control_reply *reply)
{
	(void)op;
	(void)reply;
	return ENOSYS;
}

static void is_served(int fd, uint64_t id)
{
	struct spw_control_answer answer;

	ask(fd, id, GOOD);
	assert(hear(fd, &answer) && answer.head.id == id && answer.status == 0);
	assert(answer.attr.ino == GOOD + SPW_CONTROL_GETATTR);
}

static unsigned int open_files(void)
{
	unsigned int count = 0;

	for (int fd = 0; fd < FILES; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/* Sends rubbish in pieces, until the control socket ends the connection, or to a random byte.
 * Returns how many bytes the socket took. No answer is read. */
static size_t send_rubbish(int fd)
{
	static uint8_t bytes[SPW_CONTROL_FRAME_BYTES];
	size_t count = 0, at = 0, total = 0;

	while (next_random() % 64 != 0) {
		size_t piece = 1 + next_random() % 200;
		ssize_t sent;

		if (at == count) {
			count = make_rubbish(bytes);
			at = 0;
		}
		sent = send(fd, bytes + at, piece < count - at ? piece : count - at,
			    MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent < 0) {
			assert(errno == EPIPE || errno == ECONNRESET || errno == EAGAIN);
			break;
		}
		at += (size_t)sent;
		total += (size_t)sent;
	}
	return total;
}

/* Some connections stay open for a while after their last byte. They stall the control socket if it
 * waits for the rest of a frame. */
static void rubbish_on_many_connections_harms_nobody(void)
{
	int lingering[LINGERING], good = dial();
	unsigned int connections = 0;
	size_t spent = 0;

	for (int i = 0; i < LINGERING; i++)
		lingering[i] = dial();
	while (spent < RANDOM_BYTES) {
		int *place = &lingering[next_random() % LINGERING];

		close(*place);
		*place = dial();
		spent += send_rubbish(*place);
		if (++connections % 100 == 0) {
			close(good);
			good = dial();
		}
		is_served(good, connections);
	}
	for (int i = 0; i < LINGERING; i++)
		close(lingering[i]);
	close(good);
	/* Some of what looked like requests reached the workers: about two for five connections.
	 * How many connections there are depends on how soon the control socket ends them, their
	 * share does not. */
	assert((unsigned int)atomic_load(&requests) > connections + connections / 4);
}

/* Every worker takes a request at the same time: none was lost. */
static void no_worker_is_held(void)
{
	struct spw_control_answer answer;
	int fd = dial();

	for (uint64_t id = 0; id < WORKERS; id++)
		ask(fd, id, SLOW);
	while (atomic_load(&inside) < WORKERS)
		short_nap();
	atomic_store(&held, false);
	for (int i = 0; i < WORKERS; i++)
		assert(hear(fd, &answer));
	close(fd);
}

int main(int argc, char **argv)
{
	unsigned int files;

	assert(argc == 2);
	directory = argv[1];
	assert(spw_control_open(directory, serve, tell) == 0);
	files = open_files();
	rubbish_on_many_connections_harms_nobody();
	no_worker_is_held();
	while (open_files() != files)
		short_nap();
	spw_control_close();
	puts("all passed");
	return 0;
}
