/* Sums up and prints the latencies and rates of all connections. */
#include "stats.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

#include "wire.h"

uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void stats_done(struct stats *stats, uint64_t bytes, uint64_t latency_ns)
{
    stats->ops++;
    stats->bytes += bytes;
    if (stats->latencies == stats->latencies_max) {
        stats->latencies_max = stats->latencies_max ? stats->latencies_max * 2 : 4096;
        stats->latency_ns =
            realloc(stats->latency_ns, stats->latencies_max * sizeof *stats->latency_ns);
        if (!stats->latency_ns)
            die("out of memory");
    }
    stats->latency_ns[stats->latencies++] = latency_ns;
}

void stats_error(struct stats *stats, const char *format, ...)
{
    va_list values;

    if (!stats->errors++) {
        va_start(values, format);
        vsnprintf(stats->first_error, sizeof stats->first_error, format, values);
        va_end(values);
    }
}

static int ascending(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return (a > b) - (a < b);
}

static double percentile_ms(const uint64_t *sorted, size_t count, double share)
{
    size_t index = (size_t)((double)count * share);

    if (!count)
        return 0;
    return (double)sorted[index < count ? index : count - 1] / 1e6;
}

static double cpu_seconds(void)
{
    struct rusage used;

    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* Return the sum of all, with the earliest start and the latest end. */
static struct stats sum_of(struct stats *const *all, unsigned count)
{
    struct stats sum = {.started_ns = UINT64_MAX};

    for (unsigned i = 0; i < count; i++) {
        const struct stats *one = all[i];

        sum.ops += one->ops;
        sum.bytes += one->bytes;
        sum.delays += one->delays;
        sum.lost_leases += one->lost_leases;
        sum.write_verifier = one->write_verifier;
        sum.latencies += one->latencies;
        if (one->longest_write_ns > sum.longest_write_ns)
            sum.longest_write_ns = one->longest_write_ns;
        if (one->errors && !sum.errors)
            memcpy(sum.first_error, one->first_error, sizeof sum.first_error);
        sum.errors += one->errors;
        if (one->started_ns < sum.started_ns)
            sum.started_ns = one->started_ns;
        if (one->ended_ns > sum.ended_ns)
            sum.ended_ns = one->ended_ns;
    }
    return sum;
}

bool stats_print(const char *workload, struct stats *const *all, unsigned count)
{
    struct stats sum = sum_of(all, count);
    double seconds = (double)(sum.ended_ns - sum.started_ns) / 1e9;
    uint64_t *sorted = malloc((sum.latencies + 1) * sizeof *sorted);
    size_t filled = 0;

    if (!sorted)
        die("out of memory");
    for (unsigned i = 0; i < count; i++) {
        if (all[i]->latencies)
            memcpy(sorted + filled, all[i]->latency_ns, all[i]->latencies * sizeof *sorted);
        filled += all[i]->latencies;
    }
    qsort(sorted, filled, sizeof *sorted, ascending);
    for (char *at = sum.first_error; *at; at++)
        if (*at == '"' || *at == '\\' || (unsigned char)*at < ' ')
            *at = '?';
    printf("{\"workload\": \"%s\", \"connections\": %u, \"ops\": %llu, \"bytes\": %llu, "
           "\"seconds\": %.6f, \"ops_per_second\": %.1f, \"mib_per_second\": %.2f, "
           "\"p50_ms\": %.4f, \"p95_ms\": %.4f, \"p99_ms\": %.4f, \"max_ms\": %.4f, "
           "\"longest_write_ms\": %.4f, "
           "\"delays\": %llu, \"lost_leases\": %llu, \"errors\": %llu, \"first_error\": \"%s\", "
           "\"write_verifier\": \"%016llx\", \"client_cpu_seconds\": %.3f}\n",
           workload, count, (unsigned long long)sum.ops, (unsigned long long)sum.bytes, seconds,
           (double)sum.ops / seconds, (double)sum.bytes / seconds / 1048576,
           percentile_ms(sorted, filled, 0.50), percentile_ms(sorted, filled, 0.95),
           percentile_ms(sorted, filled, 0.99), percentile_ms(sorted, filled, 1),
           (double)sum.longest_write_ns / 1e6,
           (unsigned long long)sum.delays, (unsigned long long)sum.lost_leases,
           (unsigned long long)sum.errors, sum.first_error,
           (unsigned long long)sum.write_verifier, cpu_seconds());
    free(sorted);
    return sum.errors == 0;
}
