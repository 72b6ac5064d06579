/* A stand-in for Ganesha. It starts the embedded interpreter and calls the namespace from threads
 * that come and go, as worker threads do. It prints the number of entries and of the start. */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "bridge.h"

#undef NDEBUG

static int create(uint64_t parent, const char *name, struct spw_reply *reply)
{
	struct spw_request request = {
		.ino = parent,
		.name = name,
		.name_len = (uint32_t)strlen(name),
		.set = { .mask = SPW_SET_MODE, .mode = 0640 },
	};

	return spw_call(SPW_CREATE, &request, reply);
}

static void *worker(void *argument)
{
	char name[32];

	for (int i = 0; i < 20; i++) {
		struct spw_reply reply;

		snprintf(name, sizeof(name), "f-%ld-%d", (long)(intptr_t)argument, i);
		assert(create(spw_python.root_ino, name, &reply) == 0);
		assert(reply.attr.kind == SPW_REGULAR && reply.attr.mode == 0640);
		assert(create(spw_python.root_ino, name, &reply) == EEXIST);
	}
	return NULL;
}

/* Count the entries of the root, a few at a time. */
static int count_entries(void)
{
	struct spw_dirent entries[7];
	char buffer[7 * 256];
	struct spw_request request = {
		.ino = spw_python.root_ino,
		.entries = entries,
		.entries_max = 7,
		.buffer = buffer,
		.buffer_bytes = sizeof(buffer),
	};
	struct spw_reply reply;
	int count = 0;

	do {
		assert(spw_call(SPW_READDIR, &request, &reply) == 0);
		for (uint32_t i = 0; i < reply.count; i++)
			assert(buffer[entries[i].name_offset] == 'f');
		count += (int)reply.count;
		if (reply.count > 0)
			request.cookie = entries[reply.count - 1].cookie;
	} while (!reply.eof);
	return count;
}

int main(int argc, char **argv)
{
	struct spw_request request = { .ino = 424242 };
	struct spw_reply reply;

	assert(argc == 3);
	if (spw_python_start(argv[1], argv[2]) != 0)
		return 3;
	assert(spw_calls_start() == 0);
	for (int generation = 0; generation < 3; generation++) {
		pthread_t threads[8];

		for (long i = 0; i < 8; i++)
			assert(pthread_create(&threads[i], NULL, worker,
					      (void *)(intptr_t)(generation * 8 + i)) == 0);
		for (int i = 0; i < 8; i++)
			pthread_join(threads[i], NULL);
	}
	assert(spw_call(SPW_GETATTR, &request, &reply) == ESTALE);
	/* A number that no row can have raises an error in Python, which must become EIO. */
	request.ino = UINT64_MAX;
	assert(spw_call(SPW_GETATTR, &request, &reply) == EIO);
	printf("%d entries, start %llu\n", count_entries(), (unsigned long long)spw_python.boot);
	return 0;
}
