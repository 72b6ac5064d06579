/* Tests of call.c without Python: the interpreter is a function in this program. */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bridge.h"

#undef NDEBUG

enum { THREADS = 16, ROUNDS = 500 };

static atomic_int changing, reading, answered, batches;
static atomic_bool held;
static _Atomic pthread_t last_inside;

static bool is_read(uint32_t op)
{
	return op == SPW_LOOKUP || op == SPW_GETATTR;
}

void spw_python_run(const struct spw_item *items, uint32_t count)
{
	atomic_int *inside = is_read(items[0].op) ? &reading : &changing;

	assert(count >= 1);
	atomic_store(&last_inside, pthread_self());
	/* One thread is inside at a time, and its batch has calls of one kind only. */
	assert(atomic_fetch_add(inside, 1) == 0);
	for (int waited = 0; inside == &changing && atomic_load(&held) && waited < 60000; waited++)
		usleep(1000);
	for (uint32_t i = 0; i < count; i++) {
		assert(is_read(items[i].op) == is_read(items[0].op));
		items[i].reply->attr.ino = items[i].request->ino;
		items[i].reply->status = items[i].request->ino % 7 == 0 ? ENOENT : 0;
	}
	atomic_fetch_add(&answered, (int)count);
	atomic_fetch_add(&batches, 1);
	atomic_fetch_sub(inside, 1);
}

static void call(enum spw_op op, uint64_t ino)
{
	struct spw_request request = { .ino = ino };
	struct spw_reply reply = { .status = -1 };

	/* Each call gets its own answer. */
	assert(spw_call(op, &request, &reply) == (ino % 7 == 0 ? ENOENT : 0));
	assert(reply.attr.ino == ino);
}

static void *caller(void *argument)
{
	uint64_t number = *(uint64_t *)argument;

	for (uint64_t i = 0; i < ROUNDS; i++)
		call(i % 3 == 0 ? SPW_LOOKUP : SPW_CREATE, number * ROUNDS + i);
	return NULL;
}

static void *change(void *argument)
{
	call(SPW_REMOVE, *(uint64_t *)argument);
	return NULL;
}

static void everybody_is_answered(void)
{
	static uint64_t numbers[THREADS];
	pthread_t threads[THREADS];

	atomic_store(&answered, 0);
	for (uint64_t i = 0; i < THREADS; i++) {
		numbers[i] = i;
		assert(pthread_create(&threads[i], NULL, caller, &numbers[i]) == 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert(atomic_load(&answered) == THREADS * ROUNDS);
}

static void those_that_wait_go_in_together(void)
{
	static uint64_t numbers[THREADS];
	pthread_t threads[THREADS];

	atomic_store(&batches, 0);
	atomic_store(&held, true);
	for (uint64_t i = 0; i < THREADS; i++) {
		numbers[i] = i;
		assert(pthread_create(&threads[i], NULL, change, &numbers[i]) == 0);
	}
	/* All but the thread inside wait by now or come later, so some enter together. */
	while (atomic_load(&changing) == 0)
		usleep(1000);
	usleep(50000);
	atomic_store(&held, false);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert(atomic_load(&batches) < THREADS);
}

static void *slow_change(void *argument)
{
	call(SPW_CREATE, *(uint64_t *)argument);
	return NULL;
}

static void reads_do_not_wait_for_changes(void)
{
	static uint64_t number = 1;
	pthread_t thread;

	atomic_store(&held, true);
	assert(pthread_create(&thread, NULL, slow_change, &number) == 0);
	while (atomic_load(&changing) == 0)
		usleep(1000);
	call(SPW_GETATTR, 5);
	assert(atomic_load(&changing) == 1);
	atomic_store(&held, false);
	pthread_join(thread, NULL);
}

static atomic_int refused;

static void *impatient(void *argument)
{
	struct spw_request request = { .ino = 1 };
	struct spw_reply reply = { .status = -1, .named_in = 5 };
	int rc = spw_call(*(enum spw_op *)argument, &request, &reply);

	assert(rc == 0 || rc == EAGAIN);
	assert(reply.status == rc && (rc == 0 || reply.named_in == 0));
	atomic_fetch_add(&refused, rc == EAGAIN);
	return NULL;
}

/* The database stands still: each call that waits has a thread of Ganesha's, and READs need some. */
static void not_all_threads_wait(void)
{
	enum { CALLERS = SPW_WAITING_MAX + 20 };
	static enum spw_op mkdir = SPW_MKDIR, seal = SPW_SEAL;
	pthread_t threads[CALLERS], sealer;

	atomic_store(&refused, 0);
	atomic_store(&answered, 0);
	atomic_store(&held, true);
	for (int i = 0; i < CALLERS; i++) {
		assert(pthread_create(&threads[i], NULL, impatient, &mkdir) == 0);
		while (i == 0 && atomic_load(&changing) == 0)
			usleep(1000);
	}
	/* One is in Python, and the others either wait or are refused at once. */
	for (int waited = 0; atomic_load(&refused) < 19 && waited < 50000; waited++)
		usleep(1000);
	assert(atomic_load(&refused) == 19 && atomic_load(&answered) == 0);
	assert(pthread_create(&sealer, NULL, impatient, &seal) == 0);
	call(SPW_GETATTR, 5); /* the other lane has room */
	atomic_store(&held, false);
	for (int i = 0; i < CALLERS; i++)
		pthread_join(threads[i], NULL);
	pthread_join(sealer, NULL);
	assert(atomic_load(&refused) == 19);
	assert(atomic_load(&answered) == SPW_WAITING_MAX + 1 + 2);
}

/* A lone caller enters Python by itself, and no other thread is woken for it. */
static void a_lone_call_stays_in_its_thread(void)
{
	atomic_store(&batches, 0);
	call(SPW_CREATE, 1);
	assert(pthread_equal(atomic_load(&last_inside), pthread_self()));
	call(SPW_LOOKUP, 1);
	assert(pthread_equal(atomic_load(&last_inside), pthread_self()));
	assert(atomic_load(&batches) == 2);
}

int main(void)
{
	assert(spw_calls_start() == 0);
	a_lone_call_stays_in_its_thread();
	everybody_is_answered();
	those_that_wait_go_in_together();
	reads_do_not_wait_for_changes();
	not_all_threads_wait();
	puts("all passed");
	return 0;
}
