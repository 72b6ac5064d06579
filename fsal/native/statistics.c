/* Counts of operations, in stripes that are summed when they are asked for. */
#include "statistics.h"

#include <stdatomic.h>
#include <time.h>

#include "util.h"

#define STRIPES 16u
#define WORDS (sizeof(struct spw_counts) / sizeof(uint64_t))
#define WORD(field) (offsetof(struct spw_counts, field) / sizeof(uint64_t))

/* The words of a struct spw_counts. Each kind begins a cache line. */
struct stripe {
	_Alignas(64) _Atomic uint64_t words[WORDS];
};

static struct stripe stripes[STRIPES][SPW_COUNTED_KINDS];
static atomic_uint threads;
static __thread unsigned int own; /* the stripe of the thread, plus 1; 0: none yet */
static uint64_t began_ns;

void spw_statistics_start(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	began_ns = (uint64_t)spw_ns(&now);
}

uint64_t spw_statistics_began_ns(void)
{
	return began_ns;
}

static void add(struct stripe *stripe, size_t word, uint64_t amount)
{
	/* No count orders any other memory. */
	atomic_fetch_add_explicit(&stripe->words[word], amount, memory_order_relaxed);
}

static unsigned int bucket_of(uint64_t ns)
{
	uint64_t us = ns > 0 ? (ns - 1) / 1000 : 0;
	unsigned int bits = us > 0 ? 64u - (unsigned int)__builtin_clzll(us) : 0;

	return bits < SPW_LATENCY_BUCKETS ? bits : SPW_LATENCY_BUCKETS - 1;
}

void spw_count(enum spw_counted kind, uint64_t began, enum spw_outcome outcome, uint64_t bytes)
{
	uint64_t now = spw_clock_ns(), ns = now > began ? now - began : 0;
	struct stripe *stripe;

	if (own == 0)
		own = atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) % STRIPES + 1;
	stripe = &stripes[own - 1][kind];
	if (outcome == SPW_OUTCOME_DELAYED) {
		add(stripe, WORD(delayed), 1);
		return;
	}
	add(stripe, WORD(buckets) + bucket_of(ns), 1);
	add(stripe, WORD(latency_ns), ns);
	if (bytes > 0)
		add(stripe, WORD(bytes), bytes);
	if (outcome < SPW_OUTCOME_ERRORS)
		add(stripe, WORD(errors) + outcome, 1);
}

void spw_counts(enum spw_counted kind, struct spw_counts *counts)
{
	uint64_t *words = (uint64_t *)counts;

	*counts = (struct spw_counts){ 0 };
	for (unsigned int i = 0; i < STRIPES; i++)
		for (size_t word = 0; word < WORDS; word++)
			words[word] += atomic_load_explicit(&stripes[i][kind].words[word],
							    memory_order_relaxed);
}
