/* Counts of the operations that Ganesha asks of the plugin, and of what they took. No Ganesha.
 *
 * The counters are in the memory of the server, in a few stripes, so that threads seldom share a
 * cache line. Another process reads them through the door (door.h). A file that both map would need
 * no request, but it would be on the data disk, and a page that the disk cannot give back would end
 * the server.
 */
#ifndef SPILLWAY_STATISTICS_H
#define SPILLWAY_STATISTICS_H

#include <stddef.h>
#include <stdint.h>

/* Kinds of operations, in the order of gateway/door/statistics.py. */
enum spw_counted {
	SPW_COUNTED_LOOKUP,
	SPW_COUNTED_HANDLE, /* a file handle that Ganesha's cache does not have */
	SPW_COUNTED_GETATTR,
	SPW_COUNTED_SETATTR,
	SPW_COUNTED_READDIR,
	SPW_COUNTED_CREATE, /* of files, by OPEN */
	SPW_COUNTED_OPEN,
	SPW_COUNTED_CLOSE,
	SPW_COUNTED_READ,
	SPW_COUNTED_WRITE,
	SPW_COUNTED_COMMIT,
	SPW_COUNTED_SEEK,
	SPW_COUNTED_ALLOCATE,
	SPW_COUNTED_MKDIR,
	SPW_COUNTED_MKNOD,
	SPW_COUNTED_SYMLINK,
	SPW_COUNTED_READLINK,
	SPW_COUNTED_LINK,
	SPW_COUNTED_RENAME,
	SPW_COUNTED_REMOVE,
	SPW_COUNTED_GETXATTR,
	SPW_COUNTED_SETXATTR, /* and removal */
	SPW_COUNTED_LISTXATTR,
	SPW_COUNTED_KINDS
};

/* What was answered. The kinds of errors are in the order of gateway/door/statistics.py. */
enum spw_outcome {
	SPW_OUTCOME_NOT_FOUND,
	SPW_OUTCOME_EXISTS,
	SPW_OUTCOME_DENIED,
	SPW_OUTCOME_NO_SPACE,
	SPW_OUTCOME_STALE,
	SPW_OUTCOME_IO,
	SPW_OUTCOME_OTHER,
	SPW_OUTCOME_ERRORS,
	SPW_OUTCOME_DELAYED = SPW_OUTCOME_ERRORS, /* the client asks again */
	SPW_OUTCOME_DONE
};

/* Bucket i has the operations that took at most 2^i µs, and the last one those that took longer
 * than 2^24 µs (17 s). */
#define SPW_LATENCY_BUCKETS 26u

/* The counts of one kind. An operation that was delayed is in `delayed` only. */
struct spw_counts {
	uint64_t buckets[SPW_LATENCY_BUCKETS];
	uint64_t latency_ns; /* the sum */
	uint64_t bytes;      /* that clients read or wrote */
	uint64_t delayed;
	uint64_t errors[SPW_OUTCOME_ERRORS];
};

/* Must be called before the first operation. */
void spw_statistics_start(void);

/* Returns the nanoseconds since 1970 at which the counts began. */
uint64_t spw_statistics_began_ns(void);

/* Counts an operation that was answered. began_ns: spw_clock_ns() when it began. */
void spw_count(enum spw_counted kind, uint64_t began_ns, enum spw_outcome outcome, uint64_t bytes);

/* Sums the counts of a kind. */
void spw_counts(enum spw_counted kind, struct spw_counts *counts);

#endif
