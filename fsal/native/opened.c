/* Open states in chains, the newest first, so that a list continues where it ended. */
#include "statistics.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define CHAINS 4096u

static struct {
	pthread_mutex_t lock;
	uint64_t number;
	struct spw_opened *first;
} chains[CHAINS] = { [0 ... CHAINS - 1] = { .lock = PTHREAD_MUTEX_INITIALIZER } };

static uint64_t chain_of(uint64_t ino)
{
	return ino % CHAINS;
}

static int has(uint32_t access, uint32_t flag)
{
	return (access & flag) != 0;
}

void spw_opened_set(struct spw_opened *opened, uint64_t ino, struct spw_client *client,
		    uint32_t access)
{
	uint64_t chain = chain_of(ino);
	uint32_t before = opened->access;

	if (access == before)
		return;
	pthread_mutex_lock(&chains[chain].lock);
	opened->access = access;
	if (before == 0) {
		opened->ino = ino;
		opened->client = client;
		opened->number = ++chains[chain].number;
		opened->at = &chains[chain].first;
		opened->next = chains[chain].first;
		if (opened->next != NULL)
			opened->next->at = &opened->next;
		chains[chain].first = opened;
	} else if (access == 0) {
		*opened->at = opened->next;
		if (opened->next != NULL)
			opened->next->at = opened->at;
	}
	pthread_mutex_unlock(&chains[chain].lock);
	spw_client_opened(opened->client,
			  has(access, SPW_OPENED_READS) - has(before, SPW_OPENED_READS),
			  has(access, SPW_OPENED_WRITES) - has(before, SPW_OPENED_WRITES));
}

static void fill(const struct spw_opened *opened, struct spw_opened_row *row)
{
	*row = (struct spw_opened_row){ .ino = opened->ino, .access = opened->access };
	if (opened->client != NULL)
		strcpy(row->address, spw_client_address(opened->client));
}

/* Adds the states of one chain. Returns whether all fitted. */
static bool list_chain(uint64_t ino, struct spw_opened_place *place, struct spw_opened_row *rows,
		       uint32_t most, uint32_t *count)
{
	bool fits = true;

	pthread_mutex_lock(&chains[place->chain].lock);
	for (const struct spw_opened *opened = chains[place->chain].first; opened != NULL && fits;
	     opened = opened->next) {
		if ((place->below != 0 && opened->number >= place->below) ||
		    (ino != 0 && opened->ino != ino))
			continue;
		fits = *count < most;
		if (fits) {
			fill(opened, &rows[(*count)++]);
			place->below = opened->number;
		}
	}
	pthread_mutex_unlock(&chains[place->chain].lock);
	return fits;
}

uint32_t spw_opened_list(uint64_t ino, struct spw_opened_place *place, struct spw_opened_row *rows,
			 uint32_t most)
{
	uint32_t count = 0;

	if (ino != 0)
		place->chain = chain_of(ino);
	while (place->chain < CHAINS && list_chain(ino, place, rows, most, &count)) {
		place->chain = ino != 0 ? CHAINS : place->chain + 1;
		place->below = 0;
	}
	if (place->chain >= CHAINS)
		place->chain = SPW_OPENED_END;
	return count;
}
