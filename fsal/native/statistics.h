/* What is counted, of the server as a whole and of each client. Other processes read it through the
 * control socket.
 */
#ifndef SPILLWAY_STATISTICS_H
#define SPILLWAY_STATISTICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bridge.h"

/* ---- statistics.c ---- */

/* Counts of the operations that Ganesha asks of the plugin, and of what they took. No Ganesha.
 *
 * The counters are in the memory of the server, in a few stripes, so that threads seldom share a
 * cache line. Another process reads them over the control socket (control.h). A file that both map
 * would need no request, but it would be on the data disk, and a page that the disk cannot give
 * back would end the server. */

/* Kinds of operations, in the order of gateway/rpc/statistics.py. */
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

/* What was answered. The kinds of errors are in the order of gateway/rpc/statistics.py. */
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

/* ---- clients.c ---- */

/* Counts what each client did, by the address that it comes from. No Ganesha.
 *
 * An address gets its entry with its first operation, and keeps it as long as the server runs: so
 * whatever points to an entry may count there at any time. Addresses beyond the bound share one
 * entry. */

#ifndef SPW_CLIENTS_MAX
#define SPW_CLIENTS_MAX 16384u
#endif
#define SPW_ADDRESS_BYTES 64u /* with the NUL; an address of IPv6 with its zone fits */

struct spw_client;

/* What the clients of an address did since the start of the server. gateway/rpc/clients.py has the
 * same layout. */
struct spw_client_row {
	char address[SPW_ADDRESS_BYTES]; /* empty: all addresses beyond the bound */
	uint64_t operations; /* that were answered for good */
	uint64_t bytes_read;
	uint64_t bytes_written;
	uint64_t operations_rate; /* in a second, as it was last looked at; so the next two */
	uint64_t read_rate;
	uint64_t written_rate;
	uint64_t reading; /* open states that may read; one may do both */
	uint64_t writing;
};

/* Returns the entry of an address, or NULL for an empty one: no client asked. */
struct spw_client *spw_client_of(const char *address);

/* Returns the address of an entry. */
const char *spw_client_address(const struct spw_client *client);

/* Counts an operation that was answered for good. client may be NULL. bytes: read or written. */
void spw_client_count(struct spw_client *client, enum spw_counted kind, uint64_t bytes);

/* Adds to the open states. client may be NULL. */
void spw_client_opened(struct spw_client *client, int reading, int writing);

/* Makes the rates new, if the last ones are old enough. One thread calls this, about once a second.
 * now_ms: of a clock that is never set. */
void spw_clients_look(uint64_t now_ms);

/* Fills rows, from an index on. Returns how many; fewer than `most` are the last. */
uint32_t spw_clients(uint64_t from, struct spw_client_row *rows, uint32_t most);

/* ---- opened.c ---- */

/* The open states of all files, by inode: who has a file open. No Ganesha. */

#define SPW_OPENED_READS 1u
#define SPW_OPENED_WRITES 2u
#define SPW_OPENED_END UINT64_MAX

/* The open of a state. Zeroed, it is none. */
struct spw_opened {
	struct spw_opened *next, **at; /* in its chain, under the chain's lock */
	struct spw_client *client; /* that opened it; NULL: not known */
	uint64_t ino;
	uint64_t number; /* grows with each open */
	uint32_t access; /* 0: closed */
};

/* gateway/rpc/clients.py has the same layout. */
struct spw_opened_row {
	uint64_t ino;
	uint32_t access;
	uint32_t pad;
	char address[SPW_ADDRESS_BYTES]; /* empty: not known, or beyond SPW_CLIENTS_MAX */
};

/* A place among all open states. Zeroed, it is the first; `chain` is SPW_OPENED_END after the
 * last. */
struct spw_opened_place {
	uint64_t chain;
	uint64_t below; /* number in the chain, 0: all */
};

/* Sets how a state has a file open; 0: not any more. Calls for one state do not overlap. client:
 * who opens, if it was closed. */
void spw_opened_set(struct spw_opened *opened, uint64_t ino, struct spw_client *client,
		    uint32_t access);

/* Lists open states from a place on, and moves the place. What is opened or closed meanwhile may or
 * may not be listed. ino: only of this file; 0: of all. Returns how many are in rows. */
uint32_t spw_opened_list(uint64_t ino, struct spw_opened_place *place, struct spw_opened_row *rows,
			 uint32_t most);

/* ---- leases.c ---- */

/* The clients that have a lease: Ganesha's confirmed client ids, and the names that they gave. */

#define SPW_LEASE_NAME_BYTES 152u /* the rest of a longer name is left out */

/* gateway/rpc/clients.py has the same layout. */
struct spw_lease {
	uint64_t clientid;
	int64_t renewed_seconds; /* since 1970 */
	uint64_t name_hash;      /* of the whole name */
	uint32_t minor;          /* of NFSv4 */
	uint32_t name_bytes;     /* in `name` */
	char address[SPW_ADDRESS_BYTES];
	char name[SPW_LEASE_NAME_BYTES]; /* any bytes */
};

/* Calls a function with each lease. Meanwhile Ganesha's table is locked for those who change it:
 * the function must not wait. */
void spw_leases_each(void (*look)(const struct spw_lease *lease, void *argument), void *argument);

/* Fills the leases with the least client ids above one, in their order. Returns how many; fewer
 * than `most` are the last. */
uint32_t spw_leases(uint64_t above, struct spw_lease *list, uint32_t most);

/* ---- shared.c ---- */

/* Finds names of clients that two machines share. No Ganesha.
 *
 * The server knows a client by the name that it gives itself, which Linux makes of the host's name.
 * If two machines give the same one, the server takes each of them for the other after a restart,
 * and ends the lease that the other has: opens and locks are lost, again and again. It shows as a
 * name that comes back to an address, with a new client id, after another address had it for a
 * short time. A client with many addresses has one client id; and one that gets another address at
 * its restart does not come back. */

#define SPW_SHARED_MS 600000u /* between the two times that an address has the name */

/* A name that two addresses share. */
struct spw_shared {
	uint32_t name_bytes;
	char name[SPW_LEASE_NAME_BYTES];
	char addresses[2 * SPW_ADDRESS_BYTES]; /* the present and the former one, with a space between */
};

/* Takes a lease that there is. One thread calls this for all leases, about once a second. now_ms:
 * of a clock that is never set. Returns whether it shows that a name is shared, and how. */
bool spw_shared_look(const struct spw_lease *lease, uint64_t now_ms, struct spw_shared *found);

/* ---- used.c ---- */

/* Counts what the process uses of what is limited: threads that answer calls, and descriptors.
 *
 * Another process cannot: Ganesha 4.3 gives its threads no names that the kernel knows, and who may
 * not trace the server may not look at its descriptors (proc(5)). */

/* Must be called before Ganesha starts the threads that answer calls. */
void spw_used_start(void);

void spw_used(struct spw_used *used);

#endif
