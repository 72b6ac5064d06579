/* The open states of all files, by inode: who has a file open. No Ganesha. */
#ifndef SPILLWAY_OPENED_H
#define SPILLWAY_OPENED_H

#include <stdint.h>

#include "clients.h"

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

/* gateway/door/clients.py has the same layout. */
struct spw_opened_row {
	uint64_t ino;
	uint32_t access;
	uint32_t pad;
	char address[SPW_ADDRESS_BYTES]; /* empty: not known, or beyond the bound of clients.h */
};

/* A place among all open states. Zeroed, it is the first; `chain` is SPW_OPENED_END after the last. */
struct spw_opened_place {
	uint64_t chain;
	uint64_t below; /* number in the chain, 0: all */
};

/* Sets how a state has a file open; 0: not any more. Calls for one state do not overlap. client: who
 * opens, if it was closed. */
void spw_opened_set(struct spw_opened *opened, uint64_t ino, struct spw_client *client,
		    uint32_t access);

/* Lists open states from a place on, and moves the place. What is opened or closed meanwhile may or
 * may not be listed. ino: only of this file; 0: of all. Returns how many are in rows. */
uint32_t spw_opened_list(uint64_t ino, struct spw_opened_place *place, struct spw_opened_row *rows,
			 uint32_t most);

#endif
