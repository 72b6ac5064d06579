/* Counts what each client did, by the address that it comes from. No Ganesha.
 *
 * An address gets its entry with its first operation, and keeps it as long as the server runs: so
 * whatever points to an entry may count there at any time. Addresses beyond the bound share one
 * entry.
 */
#ifndef SPILLWAY_CLIENTS_H
#define SPILLWAY_CLIENTS_H

#include <stdint.h>

#include "statistics.h"

#ifndef SPW_CLIENTS_MAX
#define SPW_CLIENTS_MAX 16384u
#endif
#define SPW_ADDRESS_BYTES 64u /* with the NUL; an address of IPv6 with its zone fits */

struct spw_client;

/* What the clients of an address did since the start of the server. gateway/door/clients.py has the
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

#endif
