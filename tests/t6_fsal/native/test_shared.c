/* Tests which changes of a lease show that two machines share a name, and which do not. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "statistics.h"

#undef NDEBUG

static uint64_t now_ms = 1000;
static struct spw_shared found;

static bool look(const char *name, const char *address, uint64_t clientid)
{
	struct spw_lease lease = { .clientid = clientid, .name_bytes = (uint32_t)strlen(name) };

	strcpy(lease.name, name);
	strcpy(lease.address, address);
	for (const char *at = name; *at != '\0'; at++)
		lease.name_hash = lease.name_hash * 31 + (unsigned char)*at;
	now_ms += 1000;
	return spw_shared_look(&lease, now_ms, &found);
}

static void a_name_that_comes_back_is_shared(void)
{
	assert(!look("node", "10.0.0.1", 1) && !look("node", "10.0.0.1", 1));
	assert(!look("node", "10.0.0.2", 2) && !look("node", "10.0.0.2", 2));
	assert(look("node", "10.0.0.1", 3));
	assert(found.name_bytes == 4 && memcmp(found.name, "node", 4) == 0);
	assert(strcmp(found.addresses, "10.0.0.1 10.0.0.2") == 0);
	assert(!look("node", "10.0.0.1", 3));
	assert(look("node", "10.0.0.2", 4));
}

static void a_restart_and_a_move_are_not(void)
{
	assert(!look("restarts", "10.0.0.1", 10) && !look("restarts", "10.0.0.1", 11));
	assert(!look("moves", "10.0.0.1", 20) && !look("moves", "10.0.0.2", 21));
	assert(!look("moves", "10.0.0.3", 22) && !look("moves", "10.0.0.4", 23));
	/* Two records of one name at the same time, each with its own id. */
	for (int i = 0; i < 3; i++)
		assert(!look("both", "10.0.0.1", 30) && !look("both", "10.0.0.2", 31));
	/* One client id, by two addresses. */
	assert(!look("trunk", "10.0.0.1", 40) && !look("trunk", "10.0.0.2", 40));
	assert(!look("trunk", "10.0.0.1", 40));
}

static void a_return_after_long_is_a_move(void)
{
	assert(!look("late", "10.0.0.1", 50) && !look("late", "10.0.0.2", 51));
	now_ms += SPW_SHARED_MS;
	assert(!look("late", "10.0.0.1", 52));
	assert(look("late", "10.0.0.2", 53));
}

/* More names than there are places: those that are looked at last are kept. */
static void old_names_are_forgotten_first(void)
{
	char name[32];

	for (unsigned int i = 0; i < 4 * SPW_SHARED_SETS * 8; i++) {
		snprintf(name, sizeof(name), "many%u", i);
		assert(!look(name, "10.0.0.1", 1000 + i) && !look(name, "10.0.0.2", 500000 + i));
	}
	assert(look(name, "10.0.0.1", 1));
	assert(!look("many0", "10.0.0.1", 2));
}

int main(void)
{
	a_name_that_comes_back_is_shared();
	a_restart_and_a_move_are_not();
	a_return_after_long_is_a_move();
	old_names_are_forgotten_first();
	puts("all passed");
	return 0;
}
