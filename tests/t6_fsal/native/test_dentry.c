/* Tests of the names whose inodes are known in C. */
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bridge.h"
#include "dentry.h"

#undef NDEBUG

static uint64_t find(uint64_t dir, const char *name)
{
	return spw_dentry_find(dir, name, (uint32_t)strlen(name));
}

static void learn(uint64_t dir, const char *name, uint64_t ino, uint64_t began)
{
	spw_dentry_learn(dir, name, (uint32_t)strlen(name), ino, began);
}

/* A change of a name that is under way. */
struct change {
	enum spw_op op;
	struct spw_request request;
	uint64_t began;
};

static struct change begin(enum spw_op op, uint64_t dir, const char *name, uint64_t dir2,
			   const char *name2)
{
	struct change change = {
		.op = op,
		.request = { .ino = dir, .name = name, .name_len = (uint32_t)strlen(name),
			     .ino2 = dir2, .name2 = name2, .name2_len = (uint32_t)strlen(name2) },
	};

	change.began = spw_dentry_change(op, &change.request);
	return change;
}

static void end(const struct change *change, uint64_t ino)
{
	struct spw_reply reply = { .attr.ino = ino };

	spw_dentry_changed(change->op, &change->request, &reply, change->began);
}

static void refused(const struct change *change)
{
	spw_dentry_changed(change->op, &change->request, NULL, change->began);
}

static void what_was_answered_is_known(void)
{
	static const enum spw_op makes[] = { SPW_CREATE, SPW_MKDIR, SPW_SYMLINK_OP, SPW_MKNOD,
					     SPW_LINK };
	struct change change;

	learn(1, "looked up", 10, spw_dentry_asked());
	assert(find(1, "looked up") == 10);
	assert(find(2, "looked up") == 0 && find(1, "looked u") == 0);
	for (uint64_t i = 0; i < sizeof(makes) / sizeof(makes[0]); i++) {
		change = begin(makes[i], 1, "made", 0, "");
		end(&change, 20 + i);
		assert(find(1, "made") == 20 + i);
	}
	change = begin(SPW_RENAME, 1, "made", 2, "moved");
	assert(find(1, "made") == 0 && find(2, "moved") == 0);
	end(&change, 24);
	assert(find(1, "made") == 0 && find(2, "moved") == 24);
	change = begin(SPW_REMOVE, 2, "moved", 24, "");
	assert(find(2, "moved") == 0);
	end(&change, 0);
	assert(find(2, "moved") == 0);
}

static void what_failed_is_forgotten(void)
{
	struct change change;

	learn(1, "a", 10, spw_dentry_asked());
	learn(1, "b", 11, spw_dentry_asked());
	change = begin(SPW_RENAME, 1, "a", 1, "b");
	refused(&change);
	assert(find(1, "a") == 0 && find(1, "b") == 0);
	learn(1, "a", 10, spw_dentry_asked());
	change = begin(SPW_CREATE, 1, "a", 0, "");
	refused(&change);
	assert(find(1, "a") == 0);
}

static void a_change_of_an_attribute_touches_no_name(void)
{
	struct change change;

	learn(1, "user.k", 10, spw_dentry_asked());
	change = begin(SPW_SETXATTR, 1, "user.k", 0, "");
	end(&change, 1);
	assert(find(1, "user.k") == 10);
}

/* Answers arrive in any order: a learned name must not outlive a change that its answer missed. */
static void answers_that_cross_a_change_are_not_believed(void)
{
	struct change made, removed, first, second;
	uint64_t asked = spw_dentry_asked();

	removed = begin(SPW_REMOVE, 1, "x", 0, "");
	learn(1, "x", 10, asked); /* a look-up that began before the removal */
	assert(find(1, "x") == 0);
	asked = spw_dentry_asked();
	learn(1, "x", 10, asked); /* a look-up that began during the removal */
	end(&removed, 0);
	assert(find(1, "x") == 0);

	made = begin(SPW_CREATE, 1, "x", 0, "");
	removed = begin(SPW_REMOVE, 1, "x", 0, "");
	end(&removed, 0);
	end(&made, 10);
	assert(find(1, "x") == 0);

	/* Two renames make the name. It is not known here which of them was the last. */
	first = begin(SPW_RENAME, 1, "p", 1, "x");
	second = begin(SPW_RENAME, 1, "q", 1, "x");
	end(&second, 11);
	end(&first, 12);
	assert(find(1, "x") == 0);
	first = begin(SPW_RENAME, 1, "p", 1, "x");
	second = begin(SPW_RENAME, 1, "q", 1, "x");
	end(&first, 12);
	end(&second, 11);
	assert(find(1, "x") == 0);
}

static void long_names_are_not_kept(void)
{
	char name[256];

	memset(name, 'n', 255);
	name[255] = '\0';
	learn(1, name, 10, spw_dentry_asked());
	assert(find(1, name) == 0);
	name[103] = '\0';
	learn(1, name, 10, spw_dentry_asked());
	assert(find(1, name) == 10);
	name[104] = 'n';
	name[103] = 'n';
	assert(spw_dentry_find(1, name, 104) == 0);
}

/* A table of a few names. Threads look them up, and change them under a lock, as the namespace
 * does. */
enum { NAMES = 4, THREADS = 6, ROUNDS = 20000 };

static pthread_mutex_t commit = PTHREAD_MUTEX_INITIALIZER;
static uint64_t table[NAMES];
static atomic_uint_fast64_t next_ino = 100;

static void change_one(unsigned int *seed)
{
	unsigned int which = (unsigned int)rand_r(seed) % NAMES;
	char name[2] = { (char)('a' + which), '\0' };
	bool removes = rand_r(seed) % 2 == 0;
	struct change change = begin(removes ? SPW_REMOVE : SPW_CREATE, 7, name, 0, "");
	uint64_t ino = removes ? 0 : atomic_fetch_add(&next_ino, 1);

	pthread_mutex_lock(&commit);
	table[which] = ino;
	pthread_mutex_unlock(&commit);
	end(&change, ino);
}

static void look_one_up(unsigned int *seed)
{
	unsigned int which = (unsigned int)rand_r(seed) % NAMES;
	char name[2] = { (char)('a' + which), '\0' };
	uint64_t asked = spw_dentry_asked(), ino;

	pthread_mutex_lock(&commit);
	ino = table[which];
	pthread_mutex_unlock(&commit);
	if (ino != 0)
		learn(7, name, ino, asked);
}

static void *work(void *argument)
{
	unsigned int seed = (unsigned int)(uintptr_t)argument;

	for (int i = 0; i < ROUNDS; i++)
		if (rand_r(&seed) % 4 == 0)
			change_one(&seed);
		else
			look_one_up(&seed);
	return NULL;
}

static void many_at_once_leave_nothing_wrong(void)
{
	pthread_t threads[THREADS];

	for (int round = 0; round < 20; round++) {
		for (uintptr_t i = 0; i < THREADS; i++)
			assert(pthread_create(&threads[i], NULL, work,
					      (void *)(i + 1 + 10 * (uintptr_t)round)) == 0);
		for (int i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
		for (unsigned int i = 0; i < NAMES; i++) {
			char name[2] = { (char)('a' + i), '\0' };
			uint64_t found = find(7, name);

			assert(found == 0 || found == table[i]);
		}
	}
}

int main(void)
{
	what_was_answered_is_known();
	what_failed_is_forgotten();
	a_change_of_an_attribute_touches_no_name();
	answers_that_cross_a_change_are_not_believed();
	long_names_are_not_kept();
	many_at_once_leave_nothing_wrong();
	puts("all passed");
	return 0;
}
