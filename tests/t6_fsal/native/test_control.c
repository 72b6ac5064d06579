/* Tests of the control socket: peers that ask, stall, send rubbish or go away. No Ganesha, no
 * Python. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "control_client.h"

#undef NDEBUG

enum { MANY = 2000, SLOW = 4242 };

static atomic_int inside, most_inside, served;
static atomic_bool held;

static void short_nap(void)
{
	usleep(1000);
}

static int serve(uint32_t op, const struct spw_control_request *asked, struct spw_control_reply *reply)
{
	const struct spw_request *request = &asked->request;
	int now = atomic_fetch_add(&inside, 1) + 1, most = atomic_load(&most_inside);

	while (now > most && !atomic_compare_exchange_weak(&most_inside, &most, now))
		;
	while (request->ino == SLOW && atomic_load(&held))
		short_nap();
	reply->attr.ino = request->ino + op;
	reply->attr.size = request->name_len;
	reply->offset = asked->offset + 1;
	reply->length = asked->length + 2;
	atomic_fetch_add(&served, 1);
	atomic_fetch_sub(&inside, 1);
	return request->ino % 7 == 0 ? ENOENT : 0;
}

static int tell(uint32_t op, struct spw_control_reply *reply)
{
	(void)op;
	(void)reply;
	return ENOSYS;
}

static void check(const struct spw_control_answer *answer, uint64_t ino)
{
	assert(answer->head.length == ANSWER);
	assert(answer->status == (ino % 7 == 0 ? ENOENT : 0));
	assert(answer->attr.ino == (ino % 7 == 0 ? 0 : ino + SPW_CONTROL_GETATTR));
	assert(answer->offset == (ino % 7 == 0 ? 0 : 1001));
	assert(answer->length == (ino % 7 == 0 ? 0 : answer->head.id + 2));
}

static void each_gets_its_own_answer(void)
{
	struct spw_control_answer answer;
	bool answered[MANY] = { false };
	int fd = dial();
	unsigned int sent = 0, count = 0;

	atomic_store(&most_inside, 0);
	while (count < MANY) {
		while (sent < MANY && sent < count + 64) {
			ask(fd, sent, 1000 + sent);
			sent++;
		}
		assert(hear(fd, &answer));
		assert(answer.head.id < MANY && !answered[answer.head.id]);
		answered[answer.head.id] = true;
		check(&answer, 1000 + answer.head.id);
		count++;
	}
	close(fd);
}

/* Several workers run the requests of one connection, so that their changes share a commit. */
static void requests_run_beside_each_other(void)
{
	struct spw_control_answer answer;
	int fd = dial();

	atomic_store(&most_inside, 0);
	atomic_store(&held, true);
	for (uint64_t i = 0; i < 8; i++)
		ask(fd, i, SLOW);
	while (atomic_load(&inside) < 8)
		short_nap();
	atomic_store(&held, false);
	for (int i = 0; i < 8; i++)
		assert(hear(fd, &answer));
	close(fd);
}

static void wait_for_end(int fd)
{
	struct spw_control_answer answer;

	while (hear(fd, &answer))
		;
	close(fd);
}

static void somebody_is_served(void)
{
	struct spw_control_answer answer;
	int fd = dial();

	ask(fd, 5, 77778);
	assert(hear(fd, &answer) && answer.head.id == 5);
	check(&answer, 77778);
	close(fd);
}

static void rubbish_ends_the_connection(void)
{
	uint8_t bytes[4096];
	int fd = dial();

	memset(bytes, 'r', sizeof(bytes));
	assert(send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL) > 0);
	wait_for_end(fd);

	fd = dial();
	(void)make(bytes, 1, 1);
	memset(bytes + offsetof(struct spw_control_head, length), 0xff, 4);
	assert(send(fd, bytes, 200, MSG_NOSIGNAL) > 0);
	wait_for_end(fd);
	somebody_is_served();
}

static void a_body_that_lies_ends_the_connection(void)
{
	struct spw_control_answer answer;
	uint8_t bytes[256];
	size_t length = make(bytes, 9, 1);
	uint32_t huge = 0xfffffff0u;
	int fd = dial();

	memcpy(bytes + sizeof(struct spw_control_head) + offsetof(struct spw_control_body, name_len), &huge, 4);
	assert(send(fd, bytes, length, MSG_NOSIGNAL) == (ssize_t)length);
	assert(hear(fd, &answer) && answer.status == EBADMSG && answer.head.id == 9);
	wait_for_end(fd);
}

/* One peer sends half a frame, one never reads its answers. Both are dropped, others are served. */
static void who_stalls_is_dropped(void)
{
	uint8_t bytes[256];
	int half = dial(), deaf = dial();
	size_t length = make(bytes, 1, 1);
	int before = atomic_load(&served), flags = fcntl(deaf, F_GETFL);

	assert(send(half, bytes, length / 2, MSG_NOSIGNAL) > 0);
	assert(fcntl(deaf, F_SETFL, flags | O_NONBLOCK) == 0);
	while (send(deaf, bytes, length, MSG_NOSIGNAL) == (ssize_t)length || errno == EAGAIN) {
		short_nap();
		if (atomic_load(&served) % 16 == 0)
			somebody_is_served();
	}
	assert(errno == EPIPE || errno == ECONNRESET);
	assert(atomic_load(&served) > before);
	close(deaf);
	wait_for_end(half);
}

static void who_goes_away_leaves_nothing(void)
{
	for (int i = 0; i < 200; i++) {
		int fd = dial();

		for (uint64_t id = 0; id < 20; id++)
			ask(fd, id, 3);
		close(fd);
	}
	somebody_is_served();
}

/* A peer is dropped while a request runs for it. No other peer gets its place before that request
 * has ended. */
static void nobody_gets_an_answer_of_another(void)
{
	struct spw_control_answer answer;
	uint8_t bytes[256];
	size_t length = make(bytes, 98, 3);
	int fd = dial();

	atomic_store(&held, true);
	ask(fd, 99, SLOW);
	while (atomic_load(&inside) < 1)
		short_nap();
	assert(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
	while (send(fd, bytes, length, MSG_NOSIGNAL) == (ssize_t)length || errno == EAGAIN)
		short_nap();
	assert(errno == EPIPE || errno == ECONNRESET);
	close(fd);
	fd = dial();
	ask(fd, 5, 3);
	assert(hear(fd, &answer) && answer.head.id == 5);
	atomic_store(&held, false);
	while (atomic_load(&inside) > 0)
		short_nap();
	for (uint64_t id = 6; id < 20; id++) {
		ask(fd, id, 3);
		assert(hear(fd, &answer) && answer.head.id == id);
	}
	close(fd);
	for (int i = 0; i < 40; i++)
		somebody_is_served();
}

/* There are more peers than places. Some wait, and get a place when silent peers are dropped. */
static void places_are_found_again(void)
{
	int fds[40];
	uint8_t byte = 'x';

	for (int i = 0; i < 40; i++) {
		fds[i] = dial();
		assert(send(fds[i], &byte, 1, MSG_NOSIGNAL) == 1);
	}
	somebody_is_served();
	for (int i = 0; i < 40; i++)
		close(fds[i]);
}

static void another_version_is_refused_by_name(void)
{
	struct spw_control_answer answer;
	uint8_t bytes[256];
	size_t length = make(bytes, 9, 1);
	int fd = dial();

	bytes[offsetof(struct spw_control_head, version)]++;
	assert(send(fd, bytes, length, MSG_NOSIGNAL) == (ssize_t)length);
	assert(hear(fd, &answer) && answer.status == EPROTONOSUPPORT);
	assert(answer.head.version == SPW_CONTROL_VERSION);
	ask(fd, 10, 1);
	assert(hear(fd, &answer) && answer.status == 0);
	close(fd);
}

/* Strangers are refused even if the socket's mode lets everyone connect. */
static void strangers_are_refused(void)
{
	struct spw_control_answer answer;
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int status, run = open(directory, O_PATH | O_DIRECTORY);
	pid_t child;

	if (geteuid() != 0)
		return; /* only root can become another user */
	assert(fchmodat(run, ".", 0711, 0) == 0 && fchmodat(run, SPW_CONTROL_NAME, 0666, 0) == 0);
	child = fork();
	if (child == 0) {
		int fd = socket(AF_UNIX, SOCK_STREAM, 0);
		uint8_t bytes[256];
		size_t length = make(bytes, 1, 1);

		if (setgid(65534) != 0 || setuid(65534) != 0)
			_exit(3);
		snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/" SPW_CONTROL_NAME,
			 run);
		if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0)
			_exit(4);
		(void)send(fd, bytes, length, MSG_NOSIGNAL);
		_exit(recv(fd, &answer, ANSWER, MSG_WAITALL) == ANSWER ? 5 : 0);
	}
	assert(waitpid(child, &status, 0) == child && WIFEXITED(status));
	assert(WEXITSTATUS(status) == 0);
	close(run);
	somebody_is_served();
}

/* While no descriptor is left for a peer, the thread does not spin. It lets the peer in later. The
 * peers are several, because those that went away just now give some descriptors back. */
static void a_lack_of_descriptors_costs_no_processor(void)
{
	enum { LIMIT = 100, LATE = 8 }; /* poll takes no more entries than the limit */
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct spw_control_answer answer;
	int fds[LATE], used_up[LIMIT];
	struct rlimit before, tight;
	int count = 0;
	clock_t began;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/" SPW_CONTROL_NAME, directory);
	for (int i = 0; i < LATE; i++)
		fds[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert(getrlimit(RLIMIT_NOFILE, &before) == 0);
	tight = (struct rlimit){ .rlim_cur = LIMIT, .rlim_max = before.rlim_max };
	assert(setrlimit(RLIMIT_NOFILE, &tight) == 0);
	while ((used_up[count] = dup(fds[0])) >= 0)
		count++;
	for (int i = 0; i < LATE; i++)
		assert(connect(fds[i], (const struct sockaddr *)&address, sizeof(address)) == 0);
	began = clock();
	usleep(600000);
	assert(clock() - began < CLOCKS_PER_SEC / 5); /* of processor time */
	while (count > 0)
		close(used_up[--count]);
	assert(setrlimit(RLIMIT_NOFILE, &before) == 0);
	for (int i = 0; i < LATE; i++) {
		ask(fds[i], 5, 8);
		assert(hear(fds[i], &answer) && answer.head.id == 5);
		close(fds[i]);
	}
}

/* A request that runs is answered, and a request that waits is not begun. */
static void the_end_waits_for_what_runs(void)
{
	struct spw_control_answer answer;
	int fd = dial(), before = atomic_load(&served);

	ask(fd, 1, 3);
	assert(hear(fd, &answer));
	spw_control_close();
	assert(!hear(fd, &answer));
	close(fd);
	assert(atomic_load(&served) == before + 1);
	spw_control_close(); /* a second close does nothing */
}

static void a_socket_of_a_killed_server_is_replaced(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct stat st;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/" SPW_CONTROL_NAME, directory);
	assert(bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
	close(fd);
	assert(spw_control_open(directory, serve, tell) == 0);
	assert(stat(address.sun_path, &st) == 0 && (st.st_mode & 0777) == 0600);
	somebody_is_served();
	spw_control_close();
	assert(access(address.sun_path, F_OK) != 0);
}

int main(int argc, char **argv)
{
	assert(argc == 2);
	directory = argv[1];
	umask(0);
	assert(spw_control_open("/nonexistent", serve, tell) == ENOENT);
	assert(spw_control_open(directory, serve, tell) == 0);
	each_gets_its_own_answer();
	requests_run_beside_each_other();
	rubbish_ends_the_connection();
	a_body_that_lies_ends_the_connection();
	another_version_is_refused_by_name();
	who_goes_away_leaves_nothing();
	who_stalls_is_dropped();
	nobody_gets_an_answer_of_another();
	places_are_found_again();
	strangers_are_refused();
	a_lack_of_descriptors_costs_no_processor();
	the_end_waits_for_what_runs();
	a_socket_of_a_killed_server_is_replaced();
	puts("all passed");
	return 0;
}
