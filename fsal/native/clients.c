/* Entries of clients in the order of their arrival, found by a table of slots. */
#include "statistics.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "util.h"

#define SLOTS (2u * SPW_CLIENTS_MAX) /* half of them are never used, so that each search ends */
#define RATE_MS 5000u

enum { OPERATIONS, BYTES_READ, BYTES_WRITTEN, COUNTS };

/* Threads that search compare addresses, and others count: so these are in lines of their own. */
struct spw_client {
	_Alignas(64) char address[SPW_ADDRESS_BYTES];
	_Alignas(64) _Atomic uint64_t counts[COUNTS];
	_Atomic int64_t reading, writing;
	_Alignas(64) uint64_t before[COUNTS]; /* at the last look; only that thread uses it */
	_Atomic uint64_t rates[COUNTS];
};

_Static_assert(SPW_CLIENTS_MAX && (SLOTS & (SLOTS - 1)) == 0, "a mask finds a slot");

static struct {
	pthread_mutex_t lock; /* of the thread that adds an entry */
	_Atomic uint32_t count;
	_Atomic(struct spw_client *) slots[SLOTS];
	struct spw_client entries[SPW_CLIENTS_MAX];
	struct spw_client others; /* beyond the bound */
	uint64_t looked_ms;
} clients = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Returns the slot of an address, or the empty one where it belongs. */
static _Atomic(struct spw_client *) *find(const char *address)
{
	uint64_t at = spw_hash(0, address, (uint32_t)strlen(address));

	for (;; at++) {
		_Atomic(struct spw_client *) *slot = &clients.slots[at & (SLOTS - 1)];
		const struct spw_client *client = atomic_load_explicit(slot, memory_order_acquire);

		if (client == NULL || strcmp(client->address, address) == 0)
			return slot;
	}
}

static struct spw_client *add(const char *address)
{
	struct spw_client *client = &clients.others;
	_Atomic(struct spw_client *) *slot;
	uint32_t count;

	if (atomic_load_explicit(&clients.count, memory_order_relaxed) == SPW_CLIENTS_MAX)
		return client;
	pthread_mutex_lock(&clients.lock);
	slot = find(address);
	count = atomic_load_explicit(&clients.count, memory_order_relaxed);
	if (atomic_load_explicit(slot, memory_order_relaxed) != NULL) {
		client = atomic_load_explicit(slot, memory_order_relaxed);
	} else if (count < SPW_CLIENTS_MAX) {
		client = &clients.entries[count];
		strcpy(client->address, address);
		atomic_store_explicit(slot, client, memory_order_release);
		atomic_store_explicit(&clients.count, count + 1, memory_order_release);
	}
	pthread_mutex_unlock(&clients.lock);
	return client;
}

struct spw_client *spw_client_of(const char *address)
{
	struct spw_client *client;

	if (address[0] == '\0')
		return NULL;
	if (strlen(address) >= SPW_ADDRESS_BYTES)
		return &clients.others;
	client = atomic_load_explicit(find(address), memory_order_acquire);
	return client != NULL ? client : add(address);
}

const char *spw_client_address(const struct spw_client *client)
{
	return client->address;
}

static void count(struct spw_client *client, unsigned int word, uint64_t amount)
{
	/* No count orders any other memory. */
	atomic_fetch_add_explicit(&client->counts[word], amount, memory_order_relaxed);
}

void spw_client_count(struct spw_client *client, enum spw_counted kind, uint64_t bytes)
{
	if (client == NULL)
		return;
	count(client, OPERATIONS, 1);
	if (kind == SPW_COUNTED_READ)
		count(client, BYTES_READ, bytes);
	else if (kind == SPW_COUNTED_WRITE)
		count(client, BYTES_WRITTEN, bytes);
}

void spw_client_opened(struct spw_client *client, int reading, int writing)
{
	if (client == NULL)
		return;
	if (reading != 0)
		atomic_fetch_add_explicit(&client->reading, reading, memory_order_relaxed);
	if (writing != 0)
		atomic_fetch_add_explicit(&client->writing, writing, memory_order_relaxed);
}

/* Returns an entry by its index, or that of all others after the last one. */
static struct spw_client *at(uint64_t index, uint32_t have)
{
	return index < have ? &clients.entries[index] : &clients.others;
}

void spw_clients_look(uint64_t now_ms)
{
	uint32_t have = atomic_load_explicit(&clients.count, memory_order_acquire);
	uint64_t passed = now_ms - clients.looked_ms;

	if (passed < RATE_MS)
		return;
	clients.looked_ms = now_ms;
	for (uint32_t i = 0; i <= have; i++) {
		struct spw_client *client = at(i, have);

		for (unsigned int word = 0; word < COUNTS; word++) {
			uint64_t now = atomic_load_explicit(&client->counts[word],
							    memory_order_relaxed);
			uint64_t rate = (now - client->before[word]) * 1000 / passed;

			atomic_store_explicit(&client->rates[word], rate, memory_order_relaxed);
			client->before[word] = now;
		}
	}
}

static void fill(struct spw_client *client, struct spw_client_row *row)
{
	uint64_t *counts = &row->operations, *rates = &row->operations_rate;

	memcpy(row->address, client->address, sizeof(row->address));
	for (unsigned int word = 0; word < COUNTS; word++) {
		counts[word] = atomic_load_explicit(&client->counts[word], memory_order_relaxed);
		rates[word] = atomic_load_explicit(&client->rates[word], memory_order_relaxed);
	}
	row->reading = (uint64_t)atomic_load_explicit(&client->reading, memory_order_relaxed);
	row->writing = (uint64_t)atomic_load_explicit(&client->writing, memory_order_relaxed);
}

uint32_t spw_clients(uint64_t from, struct spw_client_row *rows, uint32_t most)
{
	uint32_t have = atomic_load_explicit(&clients.count, memory_order_acquire);
	uint32_t filled = 0;

	for (uint64_t index = from; index <= have && filled < most; index++)
		fill(at(index, have), &rows[filled++]);
	return filled;
}
