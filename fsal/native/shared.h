/* Finds names of clients that two machines share. No Ganesha.
 *
 * The server knows a client by the name that it gives itself, which Linux makes of the host's name.
 * If two machines give the same one, the server takes each of them for the other after a restart, and
 * ends the lease that the other has: opens and locks are lost, again and again. It shows as a name
 * that comes back to an address, with a new client id, after another address had it for a short time.
 * A client with many addresses has one client id; and one that gets another address at its restart
 * does not come back.
 */
#ifndef SPILLWAY_SHARED_H
#define SPILLWAY_SHARED_H

#include <stdbool.h>
#include <stdint.h>

#include "clients.h"
#include "leases.h"

#define SPW_SHARED_MS 600000u /* between the two times that an address has the name */

/* A name that two addresses share. */
struct spw_shared {
	uint32_t name_bytes;
	char name[SPW_LEASE_NAME_BYTES];
	char addresses[2 * SPW_ADDRESS_BYTES]; /* the present and the former one, with a space between */
};

/* Takes a lease that there is. One thread calls this for all leases, about once a second. now_ms: of a
 * clock that is never set. Returns whether it shows that a name is shared, and how. */
bool spw_shared_look(const struct spw_lease *lease, uint64_t now_ms, struct spw_shared *found);

#endif
