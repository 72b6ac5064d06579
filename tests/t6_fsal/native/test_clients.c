/* Tests of the counts by client, and of the open states: nothing is lost while many threads count. */
#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "statistics.h"

#undef NDEBUG

enum { THREADS = 8, EACH = 2000, ADDRESSES = SPW_CLIENTS_MAX, ROWS = 7, FILES = 3 };

static void address_of(unsigned int number, char *address)
{
	snprintf(address, SPW_ADDRESS_BYTES, "10.0.0.%u", number);
}

static void *work(void *argument)
{
	char address[SPW_ADDRESS_BYTES];

	(void)argument;
	for (unsigned int i = 0; i < EACH; i++) {
		struct spw_opened opened = { 0 };
		struct spw_client *client;

		address_of(i % (ADDRESSES + 2), address); /* two more than there is room for */
		client = spw_client_of(address);
		spw_client_count(client, SPW_COUNTED_READ, 3);
		spw_client_count(client, SPW_COUNTED_WRITE, 5);
		spw_client_count(client, SPW_COUNTED_LOOKUP, 0);
		spw_opened_set(&opened, 1 + i % FILES, client, SPW_OPENED_READS);
		spw_opened_set(&opened, 1 + i % FILES, NULL, SPW_OPENED_READS | SPW_OPENED_WRITES);
		spw_opened_set(&opened, 1 + i % FILES, NULL, SPW_OPENED_WRITES);
		spw_opened_set(&opened, 1 + i % FILES, NULL, 0);
	}
	return NULL;
}

/* Reads all rows in pages. Returns how many there are, and sums them. */
static unsigned int sum(struct spw_client_row *all)
{
	struct spw_client_row rows[ROWS];
	unsigned int count = 0, filled;

	*all = (struct spw_client_row){ 0 };
	while ((filled = spw_clients(count, rows, ROWS)) > 0) {
		for (unsigned int i = 0; i < filled; i++) {
			all->operations += rows[i].operations;
			all->bytes_read += rows[i].bytes_read;
			all->bytes_written += rows[i].bytes_written;
			all->reading += rows[i].reading;
			all->writing += rows[i].writing;
			assert((rows[i].address[0] == '\0') == (count + i == ADDRESSES));
		}
		count += filled;
	}
	return count;
}

static void threads_lose_no_count(void)
{
	struct spw_opened_row rows[ROWS];
	struct spw_opened_place place;
	struct spw_client_row all;
	pthread_t threads[THREADS];

	assert(spw_client_of("") == NULL);
	for (uintptr_t i = 0; i < THREADS; i++)
		assert(pthread_create(&threads[i], NULL, work, NULL) == 0);
	for (unsigned int i = 0; i < 100; i++) { /* while they count */
		place = (struct spw_opened_place){ 0 };
		while (place.chain != SPW_OPENED_END)
			(void)spw_opened_list(0, &place, rows, ROWS);
		spw_clients_look(i * 1000);
	}
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert(sum(&all) == ADDRESSES + 1);
	assert(all.operations == 3 * THREADS * EACH);
	assert(all.bytes_read == 3 * THREADS * EACH && all.bytes_written == 5 * THREADS * EACH);
	assert(all.reading == 0 && all.writing == 0);
	place = (struct spw_opened_place){ 0 };
	assert(spw_opened_list(0, &place, rows, ROWS) == 0 && place.chain == SPW_OPENED_END);
}

static void addresses_beyond_the_bound_share_one_entry(void)
{
	struct spw_client *one = spw_client_of("192.168.0.1"), *other = spw_client_of("192.168.0.2");
	char address[SPW_ADDRESS_BYTES + 10], known[SPW_ADDRESS_BYTES];

	assert(one == other && spw_client_address(one)[0] == '\0');
	memset(address, 'f', sizeof(address) - 1);
	address[sizeof(address) - 1] = '\0';
	assert(spw_client_of(address) == one);
	address_of(0, known);
	assert(spw_client_of(known) != one && spw_client_of(known) == spw_client_of(known));
	assert(strcmp(spw_client_address(spw_client_of(known)), known) == 0);
}

static void rates_are_of_the_time_between_two_looks(void)
{
	struct spw_client_row row;
	struct spw_client *client;
	char address[SPW_ADDRESS_BYTES];

	spw_clients_look(1000000);
	assert(spw_clients(0, &row, 1) == 1);
	memcpy(address, row.address, sizeof(address));
	client = spw_client_of(address);
	spw_client_count(client, SPW_COUNTED_READ, 50000);
	spw_clients_look(1001000); /* too early */
	spw_client_count(client, SPW_COUNTED_READ, 50000);
	spw_clients_look(1010000);
	assert(spw_clients(0, &row, 1) == 1);
	assert(row.read_rate == 10000 && row.written_rate == 0 && row.operations_rate == 0);
	spw_clients_look(1020000);
	assert(spw_clients(0, &row, 1) == 1 && row.read_rate == 0);
}

/* More opens of one file than a page has, beside those of another one in the same chain. */
static void a_list_goes_on_where_it_ended(void)
{
	struct spw_client *client = spw_client_of("10.0.0.1");
	struct spw_opened opened[3 * ROWS + 1] = { 0 }, other = { 0 };
	struct spw_opened_place place = { 0 };
	struct spw_opened_row rows[ROWS];
	unsigned int count = 0, found = 0;

	for (unsigned int i = 0; i < 3 * ROWS + 1; i++)
		spw_opened_set(&opened[i], 7, client, SPW_OPENED_READS);
	spw_opened_set(&other, 7 + 4096, NULL, SPW_OPENED_WRITES);
	while (place.chain != SPW_OPENED_END) {
		unsigned int filled = spw_opened_list(7, &place, rows, ROWS);

		for (unsigned int i = 0; i < filled; i++)
			assert(rows[i].ino == 7 && strcmp(rows[i].address, "10.0.0.1") == 0 &&
			       rows[i].access == SPW_OPENED_READS);
		count += filled;
		/* The last one that was listed is closed meanwhile. */
		if (count == ROWS)
			spw_opened_set(&opened[2 * ROWS + 1], 7, NULL, 0);
	}
	assert(count == 3 * ROWS + 1);
	place = (struct spw_opened_place){ 0 };
	while (place.chain != SPW_OPENED_END)
		found += spw_opened_list(0, &place, rows, ROWS);
	assert(found == 3 * ROWS + 1);
	for (unsigned int i = 0; i < 3 * ROWS + 1; i++)
		spw_opened_set(&opened[i], 7, NULL, 0);
	place = (struct spw_opened_place){ 0 };
	assert(spw_opened_list(0, &place, rows, ROWS) == 1 && rows[0].address[0] == '\0');
	spw_opened_set(&other, 7 + 4096, NULL, 0);
}

int main(void)
{
	threads_lose_no_count();
	addresses_beyond_the_bound_share_one_entry();
	rates_are_of_the_time_between_two_looks();
	a_list_goes_on_where_it_ended();
	puts("all passed");
	return 0;
}
