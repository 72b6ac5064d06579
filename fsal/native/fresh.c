#include "fresh.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define SLOTS 1024u
#define BITS 32768u /* a Bloom filter of two bits a name: of 4,000 names, 1 in 20 is asked for in vain */
#define WORDS (BITS / 64)

static struct slot {
	pthread_mutex_t lock;
	uint64_t dir;           /* 0: none */
	uint64_t made_elsewhere; /* when a name was last made in another directory of this slot */
	uint64_t bits[WORDS];
} slots[SLOTS] = { [0 ... SLOTS - 1] = { .lock = PTHREAD_MUTEX_INITIALIZER } };

static atomic_uint_fast64_t now = 1;

static struct slot *lock_slot(uint64_t dir)
{
	struct slot *slot = &slots[dir % SLOTS];

	pthread_mutex_lock(&slot->lock);
	return slot;
}

/* FNV-1a; its halves are two hashes. */
static uint64_t hash(const char *name, uint32_t length)
{
	uint64_t value = 14695981039346656037u;

	for (uint32_t i = 0; i < length; i++)
		value = (value ^ (unsigned char)name[i]) * 1099511628211u;
	return value;
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
		memset(slot->bits, 0, sizeof(slot->bits));
	}
	pthread_mutex_unlock(&slot->lock);
}

static void note(uint64_t dir, const char *name, uint32_t length)
{
	uint64_t value = hash(name, length);
	struct slot *slot = lock_slot(dir);

	if (slot->dir == dir) {
		for (int half = 0; half < 2; half++, value >>= 32)
			slot->bits[value % BITS / 64] |= 1ull << value % 64;
	} else {
		slot->made_elsewhere = atomic_fetch_add(&now, 1);
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
		note(request->ino, request->name, request->name_len);
		break;
	case SPW_RENAME:
		note(request->ino2, request->name2, request->name2_len);
		break;
	default:
		break;
	}
}

bool spw_fresh_lacks(uint64_t dir, const char *name, uint32_t length)
{
	uint64_t value = hash(name, length);
	struct slot *slot = lock_slot(dir);
	bool lacks = false;

	if (slot->dir == dir)
		for (int half = 0; half < 2; half++, value >>= 32)
			lacks |= (slot->bits[value % BITS / 64] & 1ull << value % 64) == 0;
	pthread_mutex_unlock(&slot->lock);
	return lacks;
}

void spw_fresh_gone(uint64_t dir)
{
	struct slot *slot = lock_slot(dir);

	if (slot->dir == dir)
		slot->dir = 0;
	pthread_mutex_unlock(&slot->lock);
}
