/* Last two addresses of each name of a client, in sets of places. Of each set, the name that had no
 * lease for the longest time is forgotten first.
 */
#include "statistics.h"

#include <stdio.h>
#include <string.h>

#ifndef SPW_SHARED_SETS
#define SPW_SHARED_SETS 1024u
#endif
#define PLACES 8u

struct named {
	uint64_t hash;
	uint64_t clientid; /* 0: the place is free */
	uint64_t seen_ms;
	uint64_t left_ms; /* when `former` lost the name */
	uint64_t former_id;
	char address[SPW_ADDRESS_BYTES];
	char former[SPW_ADDRESS_BYTES]; /* empty: there is none */
};

static struct named names[SPW_SHARED_SETS][PLACES];

/* Returns the place of a name, or one that it may have. */
static struct named *place_of(uint64_t hash)
{
	struct named *set = names[hash % SPW_SHARED_SETS], *oldest = set;

	for (struct named *named = set; named < set + PLACES; named++) {
		if (named->clientid != 0 && named->hash == hash)
			return named;
		if (oldest->clientid != 0 &&
		    (named->clientid == 0 || named->seen_ms < oldest->seen_ms))
			oldest = named;
	}
	return oldest;
}

static void tell(const struct spw_lease *lease, const char *other, struct spw_shared *found)
{
	found->name_bytes = lease->name_bytes;
	memcpy(found->name, lease->name, lease->name_bytes);
	snprintf(found->addresses, sizeof(found->addresses), "%s %s", lease->address, other);
}

bool spw_shared_look(const struct spw_lease *lease, uint64_t now_ms, struct spw_shared *found)
{
	struct named *named = place_of(lease->name_hash);
	bool is_known = named->clientid != 0 && named->hash == lease->name_hash;
	bool is_shared = false;

	if (!is_known)
		*named = (struct named){ .hash = lease->name_hash };
	if (is_known && named->clientid != lease->clientid &&
	    strcmp(named->address, lease->address) != 0) {
		is_shared = strcmp(named->former, lease->address) == 0 &&
			    named->former_id != lease->clientid &&
			    now_ms - named->left_ms <= SPW_SHARED_MS;
		if (is_shared)
			tell(lease, named->address, found);
		memcpy(named->former, named->address, sizeof(named->former));
		named->former_id = named->clientid;
		named->left_ms = now_ms;
	}
	named->clientid = lease->clientid;
	named->seen_ms = now_ms;
	memcpy(named->address, lease->address, sizeof(named->address));
	return is_shared;
}
