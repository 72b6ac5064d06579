/* Tests of the counts: no operation is lost or counted twice, and each is in its bucket. */
#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "util.h"
#include "statistics.h"

#undef NDEBUG

enum { THREADS = 24, EACH = 20000 }; /* more threads than stripes */

static uint64_t sum(const struct spw_counts *counts)
{
	uint64_t all = 0;

	for (unsigned int i = 0; i < SPW_LATENCY_BUCKETS; i++)
		all += counts->buckets[i];
	return all;
}

static void *work(void *argument)
{
	uint64_t number = (uint64_t)(uintptr_t)argument;

	for (unsigned int i = 0; i < EACH; i++) {
		spw_count(SPW_COUNTED_WRITE, spw_clock_ns(), SPW_OUTCOME_DONE, 3);
		spw_count(SPW_COUNTED_READ, spw_clock_ns(), SPW_OUTCOME_DELAYED, 7);
		spw_count(SPW_COUNTED_LOOKUP, spw_clock_ns(), number % SPW_OUTCOME_ERRORS, 0);
	}
	return NULL;
}

static void threads_lose_no_count(void)
{
	struct spw_counts counts, before;
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		assert(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
	spw_counts(SPW_COUNTED_WRITE, &before); /* while they count */
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	spw_counts(SPW_COUNTED_WRITE, &counts);
	assert(sum(&counts) == THREADS * EACH && sum(&before) <= sum(&counts));
	assert(counts.bytes == 3 * THREADS * EACH && counts.delayed == 0 && counts.errors[0] == 0);
	spw_counts(SPW_COUNTED_READ, &counts);
	assert(counts.delayed == THREADS * EACH && sum(&counts) == 0);
	assert(counts.bytes == 0 && counts.latency_ns == 0);
	spw_counts(SPW_COUNTED_LOOKUP, &counts);
	assert(sum(&counts) == THREADS * EACH);
	for (unsigned int i = 0; i < SPW_OUTCOME_ERRORS; i++) {
		uint64_t of = THREADS / SPW_OUTCOME_ERRORS + (i < THREADS % SPW_OUTCOME_ERRORS);

		assert(counts.errors[i] == of * EACH);
	}
	spw_counts(SPW_COUNTED_RENAME, &counts);
	assert(sum(&counts) == 0);
}

/* Each time is a little above the bound of the bucket below. The clock moves meanwhile. */
static void a_time_is_in_its_bucket(void)
{
	struct spw_counts counts, before;

	for (unsigned int bit = 14; bit < SPW_LATENCY_BUCKETS - 1; bit++) {
		uint64_t ns = (1ull << bit) * 1000 + 1;

		spw_counts(SPW_COUNTED_COMMIT, &before);
		spw_count(SPW_COUNTED_COMMIT, spw_clock_ns() - ns, SPW_OUTCOME_DONE, 0);
		spw_counts(SPW_COUNTED_COMMIT, &counts);
		assert(counts.buckets[bit + 1] == before.buckets[bit + 1] + 1);
		assert(counts.latency_ns - before.latency_ns >= ns);
	}
	/* The last bucket has all that are longer, and no clock leads out of the first. */
	spw_counts(SPW_COUNTED_COMMIT, &before);
	spw_count(SPW_COUNTED_COMMIT, 0, SPW_OUTCOME_DONE, 0);
	spw_count(SPW_COUNTED_COMMIT, UINT64_MAX, SPW_OUTCOME_DONE, 0);
	spw_counts(SPW_COUNTED_COMMIT, &counts);
	assert(counts.buckets[SPW_LATENCY_BUCKETS - 1] ==
	       before.buckets[SPW_LATENCY_BUCKETS - 1] + 1);
	assert(counts.buckets[0] == before.buckets[0] + 1);
}

int main(void)
{
	assert(spw_statistics_began_ns() == 0);
	spw_statistics_start();
	assert(spw_statistics_began_ns() > 1700000000000000000u);
	threads_lose_no_count();
	a_time_is_in_its_bucket();
	puts("all passed");
	return 0;
}
