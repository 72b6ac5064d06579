/* Absent names: a counting Bloom filter for each directory that was made since the start. */
#include "names.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "util.h"

#define SLOTS 1024u
#define COUNTS 16384u /* two for each name: with 2,000 names, 1 in 20 absent names is asked for */

static struct slot {
	pthread_mutex_t lock;
	uint64_t dir;            /* 0: none */
	uint64_t made_elsewhere; /* when a name was last made in another directory of this slot */
	uint8_t counts[COUNTS];  /* a counting Bloom filter; a count that is full stays full */
} slots[SLOTS] = { [0 ... SLOTS - 1] = { .lock = PTHREAD_MUTEX_INITIALIZER } };

static atomic_uint_fast64_t now = 1;

static struct slot *lock_slot(uint64_t dir)
{
	struct slot *slot = &slots[dir % SLOTS];

	pthread_mutex_lock(&slot->lock);
	return slot;
}

uint64_t spw_fresh_begin(void)
{
	return atomic_fetch_add(&now, 1);
}

void spw_fresh_made(uint64_t dir, uint64_t began)
{
	struct slot *slot = lock_slot(dir);

	if (slot->made_elsewhere < began) {
		slot->dir = dir;
		memset(slot->counts, 0, sizeof(slot->counts));
	}
	pthread_mutex_unlock(&slot->lock);
}

/* Returns the count for one half of a name's hash. The halves serve as two hashes. */
static uint8_t *count_of(struct slot *slot, uint64_t value, int half)
{
	return &slot->counts[(value >> 32 * half) % COUNTS];
}

static void made(uint64_t dir, const char *name, uint32_t length)
{
	uint64_t value = spw_hash(0, name, length);
	struct slot *slot = lock_slot(dir);

	if (slot->dir != dir)
		slot->made_elsewhere = atomic_fetch_add(&now, 1);
	for (int half = 0; slot->dir == dir && half < 2; half++) {
		uint8_t *count = count_of(slot, value, half);

		*count += *count < UINT8_MAX;
	}
	pthread_mutex_unlock(&slot->lock);
}

static void unmade(uint64_t dir, const char *name, uint32_t length)
{
	uint64_t value = spw_hash(0, name, length);
	struct slot *slot = lock_slot(dir);

	for (int half = 0; slot->dir == dir && half < 2; half++) {
		uint8_t *count = count_of(slot, value, half);

		*count -= *count > 0 && *count < UINT8_MAX;
	}
	pthread_mutex_unlock(&slot->lock);
}

void spw_fresh_change(enum spw_op op, const struct spw_request *request)
{
	switch (op) {
	case SPW_CREATE:
	case SPW_MKDIR:
	case SPW_SYMLINK_OP:
	case SPW_MKNOD:
	case SPW_LINK:
	case SPW_INSTALL:
		made(request->ino, request->name, request->name_len);
		break;
	case SPW_RENAME:
		made(request->ino2, request->name2, request->name2_len);
		break;
	default:
		break;
	}
}

static void gone(uint64_t dir)
{
	struct slot *slot = lock_slot(dir);

	if (slot->dir == dir)
		slot->dir = 0;
	pthread_mutex_unlock(&slot->lock);
}

void spw_fresh_changed(enum spw_op op, const struct spw_request *request,
		       const struct spw_reply *reply)
{
	/* A rename between two names of one file leaves both names, and changes no directory. */
	if (op == SPW_REMOVE || (op == SPW_RENAME && reply->parent.ino != 0))
		unmade(request->ino, request->name, request->name_len);
	if (reply->removed.kind == SPW_DIRECTORY)
		gone(reply->removed.ino);
}

bool spw_fresh_lacks(uint64_t dir, const char *name, uint32_t length)
{
	uint64_t value = spw_hash(0, name, length);
	struct slot *slot = lock_slot(dir);
	bool lacks = slot->dir == dir &&
		     (*count_of(slot, value, 0) == 0 || *count_of(slot, value, 1) == 0);

	pthread_mutex_unlock(&slot->lock);
	return lacks;
}
