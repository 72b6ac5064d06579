/* The clients that have a lease: Ganesha's confirmed client ids, and the names that they gave. */
#ifndef SPILLWAY_LEASES_H
#define SPILLWAY_LEASES_H

#include <stdint.h>

#include "clients.h"

#define SPW_LEASE_NAME_BYTES 152u /* the rest of a longer name is left out */

/* gateway/door/clients.py has the same layout. */
struct spw_lease {
	uint64_t clientid;
	int64_t renewed_seconds; /* since 1970 */
	uint64_t name_hash;      /* of the whole name */
	uint32_t minor;          /* of NFSv4 */
	uint32_t name_bytes;     /* in `name` */
	char address[SPW_ADDRESS_BYTES];
	char name[SPW_LEASE_NAME_BYTES]; /* any bytes */
};

/* Calls a function with each lease. Meanwhile Ganesha's table is locked for those who change it: the
 * function must not wait. */
void spw_leases_each(void (*look)(const struct spw_lease *lease, void *argument), void *argument);

/* Fills the leases with the least client ids above one, in their order. Returns how many; fewer than
 * `most` are the last. */
uint32_t spw_leases(uint64_t above, struct spw_lease *list, uint32_t most);

#endif
