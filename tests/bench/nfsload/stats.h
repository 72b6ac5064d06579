/* The counters of one connection, and the JSON object that is printed for all of them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>

struct stats {
    uint64_t ops;
    uint64_t bytes;
    uint64_t delays;      /* answers NFS4ERR_DELAY or NFS4ERR_GRACE; each was sent again */
    uint64_t errors;
    uint64_t lost_leases;
    uint64_t started_ns;
    uint64_t ended_ns;
    uint64_t *latency_ns;
    size_t latencies;
    size_t latencies_max;
    uint64_t longest_write_ns; /* refill: of a WRITE, the repetitions after NFS4ERR_DELAY included */
    uint64_t write_verifier; /* the last one seen; 0: none */
    char first_error[160];
};

uint64_t now_ns(void);
/* Record an operation that is done, with its payload and its latency. */
void stats_done(struct stats *stats, uint64_t bytes, uint64_t latency_ns);
void stats_error(struct stats *stats, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Print the sum of all. Returns false if there were errors. */
bool stats_print(const char *workload, struct stats *const *all, unsigned count);
