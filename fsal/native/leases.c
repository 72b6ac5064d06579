/* Walk over Ganesha's table of confirmed client ids, as its reaper does (nfs_reaper_thread.c).
 *
 * The table has a reference to each id in it, and an id has references to its record and to the
 * client that made it until it is freed (nfs4_clientid.c, free_client_id). So all three are there
 * while the partition of the table is locked.
 */
#include "statistics.h"

#include <stdio.h>
#include <string.h>

#include "ganesha.h"

#include "hashtable.h"

#include "handle.h"
#include "util.h"

struct walk {
	void (*look)(const struct spw_lease *lease, void *argument);
	void *argument;
};

static void fill(const nfs_client_id_t *id, struct spw_lease *lease)
{
	const nfs_client_record_t *record = id->cid_client_record;
	uint32_t length = record != NULL ? (uint32_t)record->cr_client_val_len : 0;

	*lease = (struct spw_lease){
		.clientid = id->cid_clientid,
		/* The lock of the id is not taken for it: the table is locked already. */
		.renewed_seconds = __atomic_load_n(&id->cid_last_renew, __ATOMIC_RELAXED),
		.minor = id->cid_minorversion,
		.name_bytes = length < SPW_LEASE_NAME_BYTES ? length : SPW_LEASE_NAME_BYTES,
	};
	if (record != NULL) {
		lease->name_hash = spw_hash(0, record->cr_client_val, length);
		memcpy(lease->name, record->cr_client_val, lease->name_bytes);
	}
	if (id->gsh_client != NULL)
		snprintf(lease->address, SPW_ADDRESS_BYTES, "%.*s", (int)SPW_ADDRESS_BYTES - 1,
			 spw_address_of(id->gsh_client));
}

static void visit(struct rbt_node *node, void *argument)
{
	const struct hash_data *data = RBT_OPAQ(node);
	const struct walk *walk = argument;
	struct spw_lease lease;

	fill(data->val.addr, &lease);
	walk->look(&lease, walk->argument);
}

void spw_leases_each(void (*look)(const struct spw_lease *lease, void *argument), void *argument)
{
	struct walk walk = { .look = look, .argument = argument };

	if (ht_confirmed_client_id != NULL)
		hashtable_for_each(ht_confirmed_client_id, visit, &walk);
}

struct page {
	uint64_t above;
	struct spw_lease *list;
	uint32_t most, count;
};

/* Enters a lease in a page, unless the page is full of smaller ids. */
static void enter(const struct spw_lease *lease, void *argument)
{
	struct page *page = argument;
	uint32_t at = page->count;

	if (lease->clientid <= page->above)
		return;
	if (at == page->most) {
		if (lease->clientid > page->list[at - 1].clientid)
			return;
		at--;
	} else {
		page->count++;
	}
	for (; at > 0 && page->list[at - 1].clientid > lease->clientid; at--)
		page->list[at] = page->list[at - 1];
	page->list[at] = *lease;
}

uint32_t spw_leases(uint64_t above, struct spw_lease *list, uint32_t most)
{
	struct page page = { .above = above, .list = list, .most = most };

	spw_leases_each(enter, &page);
	return page.count;
}
