/* Tests of the requests that the control socket answers from memory, with data. */
#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "control_client.h"

#undef NDEBUG

enum { WORKERS = 13, MANY = 40 };

static atomic_int inside;
static atomic_bool held = true;

static void short_nap(void)
{
	usleep(1000);
}

/* Waits, as a request does while the namespace is away. */
static int serve(uint32_t op, const struct spw_control_request *asked, struct spw_control_reply *reply)
{
	(void)op;
	(void)asked;
	atomic_fetch_add(&inside, 1);
	while (atomic_load(&held))
		short_nap();
	reply->data_bytes = 3;
	memcpy(reply->data, "own", 3);
	return 0;
}

/* Answers with as many bytes of data as fit. */
static int tell(uint32_t op, struct spw_control_reply *reply)
{
	if (op != SPW_CONTROL_STATISTICS)
		return ENOSYS;
	memset(reply->data, 'd', SPW_CONTROL_DATA_BYTES);
	reply->data_bytes = SPW_CONTROL_DATA_BYTES;
	reply->offset = 17;
	return 0;
}

static void hear_data(int fd, uint64_t id)
{
	uint8_t data[SPW_CONTROL_DATA_BYTES];
	struct spw_control_answer answer;

	assert(hear(fd, &answer) && answer.head.id == id && answer.status == 0);
	assert(answer.head.length == ANSWER + sizeof(data) && answer.offset == 17);
	assert(recv(fd, data, sizeof(data), MSG_WAITALL) == (ssize_t)sizeof(data));
	assert(data[0] == 'd' && data[sizeof(data) - 1] == 'd');
}

/* What the server has in memory is told while every worker waits, as often as a peer may ask. */
static void memory_needs_no_worker(void)
{
	struct spw_control_answer answer;
	int busy = dial(), fd = dial();
	char own[3];

	for (uint64_t i = 0; i < MANY; i++)
		ask(busy, i, 1);
	while (atomic_load(&inside) < WORKERS)
		short_nap();
	for (uint64_t i = 0; i < 64; i++)
		ask_of(fd, i, 1, SPW_CONTROL_STATISTICS);
	for (uint64_t i = 0; i < 64; i++)
		hear_data(fd, i);
	assert(atomic_load(&inside) == WORKERS);
	atomic_store(&held, false);
	for (int i = 0; i < MANY; i++) {
		assert(hear(busy, &answer) && answer.head.length == ANSWER + sizeof(own));
		assert(recv(busy, own, sizeof(own), MSG_WAITALL) == 3 && memcmp(own, "own", 3) == 0);
	}
	close(busy);
	close(fd);
}

int main(int argc, char **argv)
{
	assert(argc == 2);
	directory = argv[1];
	assert(spw_control_open(directory, serve, tell) == 0);
	memory_needs_no_worker();
	spw_control_close();
	puts("all passed");
	return 0;
}
