/* Tests of space.c without Ganesha and without Python. The disk is a number in this program, and
 * the clock is the argument of the tick. */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "bridge.h"
#include "space.h"

#undef NDEBUG

#define MIB (1ull << 20)
#define TOTAL (1000 * MIB)
#define RESERVE (100 * MIB)
#define WAIT_MS 3000

static atomic_uint_fast64_t free_bytes, dirty_bytes;
static struct spw_space last;
static atomic_int flow_calls;
static uint64_t now_ms = 1000000;

static int disk(uint64_t *total, uint64_t *available)
{
	*total = TOTAL;
	*available = atomic_load(&free_bytes);
	return 0;
}

static void report(const struct spw_space *space, uint64_t *dirty)
{
	last = *space;
	*dirty = atomic_load(&dirty_bytes);
}

/* Inodes below 1000 are in directory 1, the others in directory 2; one client has weight 3. */
static void flow(uint64_t ino, const char *client, uint64_t *top, uint32_t *weight)
{
	atomic_fetch_add(&flow_calls, 1);
	*top = ino < 1000 ? 1 : 2;
	*weight = strcmp(client, "heavy") == 0 ? 3 : 1;
}

static void start(uint64_t available, uint64_t limit)
{
	static const struct spw_space_ops ops = { .disk = disk, .report = report, .flow = flow };
	const struct spw_limits limits = {
		.reserve_bytes = RESERVE,
		.dirty_limit_bytes = limit,
		.slow_per_mille = 900,
		.full_wait_ms = WAIT_MS,
	};

	atomic_store(&free_bytes, TOTAL);
	atomic_store(&dirty_bytes, 0);
	spw_space_start(&limits, &ops);
	now_ms += 10000000; /* earlier writers are idle then */
	spw_space_tick(now_ms);
	atomic_store(&free_bytes, available);
	now_ms += 1000;
	spw_space_tick(now_ms);
}

static void tick(void)
{
	now_ms += 100;
	spw_space_tick(now_ms);
}

/* Ask for 1 MiB up to 100 times, until the client is refused. The disk loses what it got. */
static uint64_t write_for_a_tick(uint64_t ino, uint64_t *top, const char *client, int *rc)
{
	uint64_t got = 0;

	for (int i = 0; i < 100; i++) {
		*rc = spw_space_take(ino, top, client, MIB);
		if (*rc != 0)
			break;
		got += MIB;
	}
	atomic_fetch_sub(&free_bytes, got);
	spw_space_done(got);
	return got;
}

static void with_plenty_of_room_nobody_waits(void)
{
	uint64_t top = 0;
	int before = atomic_load(&flow_calls);

	start(900 * MIB, UINT64_MAX);
	for (int i = 0; i < 500; i++)
		assert(spw_space_take(5, &top, "a", MIB) == 0);
	assert(atomic_load(&flow_calls) == before && top == 0);
	/* Taken bytes count until they are done and the disk shows them. */
	assert(spw_space_available() == 300 * MIB);
	tick();
	assert(spw_space_available() == 300 * MIB);
	spw_space_done(500 * MIB);
	tick();
	assert(spw_space_available() == 800 * MIB);
	assert(last.level == SPW_ROOM);
}

/* As on any file system: no room is made for such a request, so its client would ask for ever. */
static void more_than_is_left_at_once_is_refused_at_once(void)
{
	uint64_t top = 0;
	int rc;

	start(900 * MIB, UINT64_MAX);
	assert(last.level == SPW_ROOM);
	assert(spw_space_take(5, &top, "a", 900 * MIB) == ENOSPC);
	assert(spw_space_take(5, &top, "a", UINT64_MAX) == ENOSPC);
	assert(spw_space_available() == 800 * MIB);
	assert(spw_space_take(5, &top, "a", 200 * MIB) == 0);
	spw_space_done(200 * MIB);
	start(RESERVE + 20 * MIB, UINT64_MAX);
	for (int i = 0; i < 11; i++) /* until the level is reported */
		tick();
	assert(last.level == SPW_SLOW);
	assert(spw_space_take(5, &top, "a", 50 * MIB) == ENOSPC);
	/* A WRITE waits for its share. */
	rc = spw_space_take(5, &top, "a", MIB);
	assert(rc == 0 || rc == EAGAIN);
	if (rc == 0)
		spw_space_done(MIB);
}

static void the_reserve_is_never_touched(void)
{
	uint64_t top = 0, got = 0;
	int rc = 0;

	start(300 * MIB, UINT64_MAX);
	for (int i = 0; i < 3000; i++) {
		got += write_for_a_tick(5, &top, "a", &rc);
		tick();
	}
	assert(rc == ENOSPC);
	assert(atomic_load(&free_bytes) >= RESERVE);
	/* Nearly all bytes above the reserve were used. */
	assert(got > 190 * MIB && got <= 200 * MIB);
	assert(spw_space_take(5, &top, "a", 300 * MIB) == ENOSPC);
}

static void a_turn_to_write_is_no_right_to_the_reserve(void)
{
	uint64_t top = 0;
	int rc;

	start(RESERVE + 50 * MIB, UINT64_MAX);
	(void)write_for_a_tick(5, &top, "a", &rc);
	tick();
	assert(spw_space_take(5, &top, "a", 60 * MIB) != 0);
	assert(spw_space_take(5, &top, "a", MIB) == 0);
	spw_space_done(MIB);
}

static void writers_are_told_to_wait_before_they_are_told_no(void)
{
	uint64_t top = 0, asked_ms;
	int rc;

	start(RESERVE + 2 * MIB, UINT64_MAX);
	tick();
	asked_ms = now_ms;
	do {
		(void)write_for_a_tick(5, &top, "a", &rc);
		assert(rc == EAGAIN || rc == ENOSPC);
		tick();
	} while (rc == EAGAIN);
	assert(now_ms - asked_ms >= WAIT_MS - 200 && now_ms - asked_ms <= WAIT_MS + 1000);
	/* After room is made, a write is granted again. */
	atomic_store(&free_bytes, 800 * MIB);
	tick();
	assert(spw_space_take(5, &top, "a", MIB) == 0);
	spw_space_done(MIB);
}

static void progress_keeps_writers_waiting(void)
{
	uint64_t top = 0, got = 0;
	int rc = 0;

	start(RESERVE + 4 * MIB, UINT64_MAX);
	for (int i = 0; i < 600; i++) { /* 60 s, twenty times the wait; the drain frees 1 MiB/s */
		got += write_for_a_tick(5, &top, "a", &rc);
		assert(rc != ENOSPC);
		if (i % 10 == 0)
			atomic_fetch_add(&free_bytes, 1 * MIB);
		tick();
		assert(i < 10 || last.level == SPW_FULL);
	}
	/* The freed bytes were granted, so writers go at the pace of the drain. */
	assert(got > 50 * MIB && got < 66 * MIB);
}

static void shares_are_fair(void)
{
	uint64_t tops[3] = { 0, 0, 0 }, got[3] = { 0, 0, 0 };
	int rc;

	start(RESERVE + 90 * MIB, UINT64_MAX);
	for (int i = 0; i < 300; i++) {
		/* One client always asks first. */
		got[0] += write_for_a_tick(5, &tops[0], "greedy", &rc);
		got[1] += write_for_a_tick(6, &tops[1], "modest", &rc);
		got[2] += write_for_a_tick(2000, &tops[2], "heavy", &rc);
		atomic_fetch_add(&free_bytes, 5 * MIB);
		tick();
	}
	assert(tops[0] == 1 && tops[1] == 1 && tops[2] == 2);
	assert(got[1] * 10 > got[0] * 8 && got[0] * 10 > got[1] * 8);
	assert(got[2] * 10 > got[0] * 3 * 8 && got[2] * 8 < got[0] * 3 * 10);
}

static void a_flow_has_a_client_and_a_directory(void)
{
	uint64_t tops[2] = { 0, 0 }, got[2] = { 0, 0 };
	int rc;

	start(RESERVE + 90 * MIB, UINT64_MAX);
	for (int i = 0; i < 200; i++) {
		got[0] += write_for_a_tick(5, &tops[0], "a", &rc);
		got[1] += write_for_a_tick(1005, &tops[1], "a", &rc);
		atomic_fetch_add(&free_bytes, 5 * MIB);
		tick();
	}
	assert(got[1] * 10 > got[0] * 8 && got[0] * 10 > got[1] * 8);
}

static void the_dirty_limit_counts_what_no_row_has_yet(void)
{
	uint64_t top = 0;

	start(900 * MIB, 200 * MIB);
	assert(spw_space_available() == 200 * MIB);
	spw_space_grown(50 * MIB);
	tick();
	assert(spw_space_available() == 150 * MIB);
	/* After the seal a row has the bytes, but the rows were summed up before. */
	spw_space_sealed(50 * MIB, true);
	tick();
	assert(spw_space_available() == 150 * MIB);
	atomic_store(&dirty_bytes, 50 * MIB);
	for (int i = 0; i < 11; i++)
		tick();
	assert(spw_space_available() == 150 * MIB);
	/* Now the bytes are in the bucket. */
	atomic_store(&dirty_bytes, 0);
	for (int i = 0; i < 11; i++)
		tick();
	assert(spw_space_available() == 200 * MIB);
	/* These bytes are written and deleted before a row has them. */
	spw_space_grown(70 * MIB);
	spw_space_sealed(70 * MIB, false);
	tick();
	assert(spw_space_available() == 200 * MIB);
	assert(spw_space_take(5, &top, "a", 170 * MIB) == 0);
	spw_space_done(170 * MIB);
}

static void a_disk_that_has_no_room_by_itself_is_waited_for_too(void)
{
	start(900 * MIB, UINT64_MAX);
	assert(spw_space_refused() == EAGAIN);
	now_ms += WAIT_MS - 100;
	spw_space_tick(now_ms);
	assert(spw_space_refused() == EAGAIN);
	tick();
	assert(spw_space_refused() == ENOSPC);
	/* After a long time without a refusal the wait begins again. */
	now_ms += 60000;
	spw_space_tick(now_ms);
	assert(spw_space_refused() == EAGAIN);
}

static atomic_bool done;

static void *taker(void *argument)
{
	uint64_t top = 0;

	while (!atomic_load(&done)) {
		if (spw_space_take(*(uint64_t *)argument, &top, "a", 65536) == 0) {
			atomic_fetch_sub(&free_bytes, 65536);
			spw_space_done(65536);
		}
	}
	return NULL;
}

static void many_at_once(void)
{
	static uint64_t inos[8];
	pthread_t threads[8];

	start(RESERVE + 140 * MIB, UINT64_MAX);
	for (uint64_t i = 0; i < 8; i++) {
		inos[i] = i * 300;
		assert(pthread_create(&threads[i], NULL, taker, &inos[i]) == 0);
	}
	for (int i = 0; i < 400; i++)
		tick();
	atomic_store(&done, true);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	assert(atomic_load(&free_bytes) >= RESERVE);
}

int main(void)
{
	with_plenty_of_room_nobody_waits();
	more_than_is_left_at_once_is_refused_at_once();
	the_reserve_is_never_touched();
	a_turn_to_write_is_no_right_to_the_reserve();
	writers_are_told_to_wait_before_they_are_told_no();
	progress_keeps_writers_waiting();
	shares_are_fair();
	a_flow_has_a_client_and_a_directory();
	the_dirty_limit_counts_what_no_row_has_yet();
	a_disk_that_has_no_room_by_itself_is_waited_for_too();
	many_at_once();
	puts("all passed");
	return 0;
}
