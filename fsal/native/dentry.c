/* Cache of names that the namespace told lately. Each name has one slot, and replaces the name in
 * it.
 */
#include "names.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "util.h"

#define SLOTS 65536u
#define LOCKS 256u
#define LONGEST 101u /* longer names are asked for each time; a slot has 128 bytes */

static struct slot {
	uint64_t dir;
	uint64_t ino;      /* 0: the slot has no name */
	uint64_t touched;  /* when a change of a name of this slot began or ended */
	uint16_t changing; /* changes of names of this slot that are under way */
	uint8_t length;
	char name[LONGEST];
} slots[SLOTS];

static pthread_mutex_t locks[LOCKS] = { [0 ... LOCKS - 1] = PTHREAD_MUTEX_INITIALIZER };
static atomic_uint_fast64_t now = 1;

static unsigned int slot_of(uint64_t dir, const char *name, uint32_t length)
{
	uint64_t value = spw_hash(dir * 0x9e3779b97f4a7c15u, name, length);

	return (unsigned int)((value >> 32 ^ value) % SLOTS);
}

static bool is_of(const struct slot *slot, uint64_t dir, const char *name, uint32_t length)
{
	return slot->ino != 0 && slot->dir == dir && slot->length == length &&
	       memcmp(slot->name, name, length) == 0;
}

uint64_t spw_dentry_asked(void)
{
	return atomic_fetch_add(&now, 1);
}

static void learn_locked(struct slot *slot, uint64_t dir, const char *name, uint32_t length,
			 uint64_t ino, uint64_t began)
{
	if (ino == 0 || slot->changing > 0 || slot->touched >= began || length > LONGEST)
		return;
	slot->dir = dir;
	slot->ino = ino;
	slot->length = (uint8_t)length;
	memcpy(slot->name, name, length);
}

void spw_dentry_learn(uint64_t dir, const char *name, uint32_t length, uint64_t ino, uint64_t began)
{
	unsigned int at = slot_of(dir, name, length);

	pthread_mutex_lock(&locks[at % LOCKS]);
	learn_locked(&slots[at], dir, name, length, ino, began);
	pthread_mutex_unlock(&locks[at % LOCKS]);
}

static void begin(uint64_t dir, const char *name, uint32_t length)
{
	unsigned int at = slot_of(dir, name, length);

	pthread_mutex_lock(&locks[at % LOCKS]);
	slots[at].ino = 0;
	slots[at].changing++;
	slots[at].touched = atomic_fetch_add(&now, 1);
	pthread_mutex_unlock(&locks[at % LOCKS]);
}

/* ino: as of spw_dentry_learn(), or 0 if it is not known. */
static void end(uint64_t dir, const char *name, uint32_t length, uint64_t ino, uint64_t began)
{
	unsigned int at = slot_of(dir, name, length);

	pthread_mutex_lock(&locks[at % LOCKS]);
	slots[at].changing--;
	learn_locked(&slots[at], dir, name, length, ino, began);
	slots[at].touched = atomic_fetch_add(&now, 1);
	pthread_mutex_unlock(&locks[at % LOCKS]);
}

/* A change touches the name that it takes away and the name that it makes. */
static bool takes(enum spw_op op)
{
	return op == SPW_REMOVE || op == SPW_RENAME;
}

static bool makes(enum spw_op op)
{
	return (op >= SPW_CREATE && op <= SPW_LINK) || op == SPW_INSTALL;
}

uint64_t spw_dentry_change(enum spw_op op, const struct spw_request *request)
{
	if (takes(op) || makes(op))
		begin(request->ino, request->name, request->name_len);
	if (op == SPW_RENAME)
		begin(request->ino2, request->name2, request->name2_len);
	return atomic_fetch_add(&now, 1);
}

void spw_dentry_changed(enum spw_op op, const struct spw_request *request,
			const struct spw_reply *reply, uint64_t began)
{
	uint64_t made = reply != NULL ? reply->attr.ino : 0;
	/* A rename between two names of one file leaves both names, and changes no directory. */
	uint64_t taken = reply != NULL && reply->parent.ino != 0 ? SPW_NO_INO : 0;

	if (takes(op) || makes(op))
		end(request->ino, request->name, request->name_len, takes(op) ? taken : made,
		    began);
	if (op == SPW_RENAME)
		end(request->ino2, request->name2, request->name2_len, made, began);
}

static uint64_t known(uint64_t dir, const char *name, uint32_t length)
{
	unsigned int at = slot_of(dir, name, length);
	uint64_t ino;

	pthread_mutex_lock(&locks[at % LOCKS]);
	ino = is_of(&slots[at], dir, name, length) ? slots[at].ino : 0;
	pthread_mutex_unlock(&locks[at % LOCKS]);
	return ino;
}

uint64_t spw_dentry_find(uint64_t dir, const char *name, uint32_t length)
{
	uint64_t ino = known(dir, name, length);

	return ino != SPW_NO_INO ? ino : 0;
}

bool spw_dentry_lacks(uint64_t dir, const char *name, uint32_t length)
{
	return known(dir, name, length) == SPW_NO_INO;
}
