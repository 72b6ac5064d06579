/* Tests of the names whose inodes are known in C. */
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bridge.h"
#include "names.h"

#undef NDEBUG

static uint64_t find(uint64_t dir, const char *name)
{
	return spw_dentry_find(dir, name, (uint32_t)strlen(name));
}

static bool lacks(uint64_t dir, const char *name)
{
	return spw_dentry_lacks(dir, name, (uint32_t)strlen(name));
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
	struct spw_reply reply = { .attr.ino = ino, .parent.ino = change->request.ino };

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
	assert(lacks(1, "made") && !lacks(2, "moved"));
	change = begin(SPW_REMOVE, 2, "moved", 24, "");
	assert(find(2, "moved") == 0 && !lacks(2, "moved"));
	end(&change, 0);
	assert(find(2, "moved") == 0 && lacks(2, "moved"));
	learn(1, "absent", SPW_NO_INO, spw_dentry_asked());
	assert(lacks(1, "absent") && find(1, "absent") == 0);
	assert(!lacks(2, "absent") && !lacks(1, "absen"));
}

static void a_rename_between_two_names_of_a_file_takes_none(void)
{
	struct change change = begin(SPW_RENAME, 1, "one", 1, "two");
	struct spw_reply reply = { .attr.ino = 30 };

	spw_dentry_changed(SPW_RENAME, &change.request, &reply, change.began);
	assert(!lacks(1, "one") && find(1, "two") == 30);
}

static void what_failed_is_forgotten(void)
{
	struct change change;

	learn(1, "a", 10, spw_dentry_asked());
	learn(1, "b", 11, spw_dentry_asked());
	change = begin(SPW_RENAME, 1, "a", 1, "b");
	refused(&change);
	assert(find(1, "a") == 0 && find(1, "b") == 0 && !lacks(1, "a") && !lacks(1, "b"));
	learn(1, "a", 10, spw_dentry_asked());
	change = begin(SPW_CREATE, 1, "a", 0, "");
	refused(&change);
	assert(find(1, "a") == 0 && !lacks(1, "a"));
}

static void a_change_of_an_attribute_touches_no_name(void)
{
	struct change change;

	learn(1, "user.k", 10, spw_dentry_asked());
	change = begin(SPW_SETXATTR, 1, "user.k", 0, "");
	end(&change, 1);
	assert(find(1, "user.k") == 10);
}

/* ---- every order of three calls ---- */

enum kind { LOOKUP, CREATE, REMOVE, MOVE_HERE, MOVE_AWAY, KINDS };
enum { X, Y, CALLS = 3, STEPS = 3 };

static const char *const names[] = { [X] = "x", [Y] = "y" };

/* The namespace: a directory with the inodes of x and y; 0: absent. */
static uint64_t dir = 1000, entries[2], last_ino = 100;

/* A call that looks x up, makes or removes it, or renames y to x or x to y. */
struct call {
	enum kind kind;
	int step;
	uint64_t asked, answer;
	bool failed;
	struct change change;
};

static void ask(struct call *call)
{
	enum spw_op op = call->kind == CREATE ? SPW_CREATE
			 : call->kind == REMOVE ? SPW_REMOVE : SPW_RENAME;
	int from = call->kind == MOVE_HERE ? Y : X;

	if (call->kind == LOOKUP)
		call->asked = spw_dentry_asked();
	else
		call->change = begin(op, dir, names[from], op == SPW_RENAME ? dir : 0,
				     op == SPW_RENAME ? names[1 - from] : "");
}

static void commit_call(struct call *call)
{
	int from = call->kind == MOVE_HERE ? Y : X;
	uint64_t ino = entries[from];

	call->failed = (ino == 0) == (call->kind != CREATE);
	call->answer = ino != 0 ? ino : SPW_NO_INO;
	if (call->kind == LOOKUP || call->failed)
		return;
	call->answer = call->kind == CREATE ? ++last_ino : call->kind == REMOVE ? 0 : ino;
	entries[from] = call->kind == CREATE ? last_ino : 0;
	if (call->kind > REMOVE)
		entries[1 - from] = ino;
}

static void take_answer(const struct call *call)
{
	if (call->kind == LOOKUP)
		learn(dir, names[X], call->answer, call->asked);
	else if (call->failed)
		refused(&call->change);
	else
		end(&call->change, call->answer);
}

/* What is known is so at this moment, whether or not the clients have their answers. */
static void nothing_known_is_wrong(void)
{
	for (int which = X; which <= Y; which++) {
		uint64_t found = find(dir, names[which]);

		assert(found == 0 || found == entries[which]);
		assert(!lacks(dir, names[which]) || entries[which] == 0);
	}
}

static void run_in_order(const enum kind *kinds, const int *order, unsigned int made)
{
	struct call calls[CALLS] = { 0 };

	dir++;
	for (int which = X; which <= Y; which++)
		entries[which] = made & 1u << which ? ++last_ino : 0;
	for (int i = 0; i < CALLS; i++)
		calls[i].kind = kinds[i];
	for (int i = 0; i < CALLS * STEPS; i++) {
		struct call *call = &calls[order[i]];

		if (call->step == 0)
			ask(call);
		else if (call->step == 1)
			commit_call(call);
		else
			take_answer(call);
		call->step++;
		nothing_known_is_wrong();
	}
	/* A look-up beside which nothing changes is believed. */
	calls[0] = (struct call){ .kind = LOOKUP };
	ask(&calls[0]);
	commit_call(&calls[0]);
	take_answer(&calls[0]);
	assert(find(dir, "x") == entries[X] && lacks(dir, "x") == (entries[X] == 0));
}

/* Runs the calls in every order that begins with the first `done` steps of `order`. */
static void run_in_every_order(const enum kind *kinds, int *order, int done, unsigned int made)
{
	int taken[CALLS] = { 0 };

	if (done == CALLS * STEPS) {
		run_in_order(kinds, order, made);
		return;
	}
	for (int i = 0; i < done; i++)
		taken[order[i]]++;
	for (int which = 0; which < CALLS; which++) {
		order[done] = which;
		if (taken[which] < STEPS)
			run_in_every_order(kinds, order, done + 1, made);
	}
}

static void no_order_of_answers_hides_a_file_or_shows_one_that_is_gone(void)
{
	int order[CALLS * STEPS];

	for (enum kind first = CREATE; first < KINDS; first++)
		for (enum kind second = first; second < KINDS; second++)
			for (unsigned int made = 0; made < 4; made++)
				run_in_every_order((enum kind[]){ LOOKUP, first, second }, order, 0,
						   made);
}

static void long_names_are_not_kept(void)
{
	char name[256];

	memset(name, 'n', 255);
	name[255] = '\0';
	learn(1, name, 10, spw_dentry_asked());
	assert(find(1, name) == 0);
	learn(1, name, SPW_NO_INO, spw_dentry_asked());
	assert(!lacks(1, name));
	name[101] = '\0';
	learn(1, name, 10, spw_dentry_asked());
	assert(find(1, name) == 10);
	name[101] = 'n';
	assert(spw_dentry_find(1, name, 102) == 0);
}

/* A table of a few names. Threads look them up, and change them under a lock, as the namespace
 * does. */
enum { NAMES = 4, THREADS = 6, ROUNDS = 20000 };

static pthread_mutex_t commit = PTHREAD_MUTEX_INITIALIZER;
static uint64_t table[NAMES + THREADS]; /* each thread has a name of its own at the end */
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
	unsigned int which = (unsigned int)rand_r(seed) % (NAMES + THREADS);
	char name[2] = { (char)('a' + which), '\0' };
	uint64_t asked = spw_dentry_asked(), ino;

	pthread_mutex_lock(&commit);
	ino = table[which];
	pthread_mutex_unlock(&commit);
	learn(7, name, ino != 0 ? ino : SPW_NO_INO, asked);
}

/* Makes and removes a name that no other thread changes: the thread knows the truth. */
static void change_own(unsigned int which)
{
	char name[2] = { (char)('a' + which), '\0' };
	struct change change = begin(SPW_CREATE, 7, name, 0, "");
	uint64_t ino = atomic_fetch_add(&next_ino, 1), found;

	pthread_mutex_lock(&commit);
	table[which] = ino;
	pthread_mutex_unlock(&commit);
	end(&change, ino);
	found = find(7, name);
	assert(!lacks(7, name) && (found == 0 || found == ino));
	change = begin(SPW_REMOVE, 7, name, 0, "");
	pthread_mutex_lock(&commit);
	table[which] = 0;
	pthread_mutex_unlock(&commit);
	end(&change, 0);
	assert(find(7, name) == 0);
}

static void *work(void *argument)
{
	unsigned int number = (unsigned int)(uintptr_t)argument, seed = number;

	for (int i = 0; i < ROUNDS; i++) {
		int what = rand_r(&seed) % 8;

		if (what < 2)
			change_one(&seed);
		else if (what == 2)
			change_own(NAMES + number % THREADS);
		else
			look_one_up(&seed);
	}
	return NULL;
}

static void many_at_once_leave_nothing_wrong(void)
{
	pthread_t threads[THREADS];

	for (int round = 0; round < 20; round++) {
		for (uintptr_t i = 0; i < THREADS; i++)
			assert(pthread_create(&threads[i], NULL, work,
					      (void *)(i + THREADS * (uintptr_t)round)) == 0);
		for (int i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
		for (unsigned int i = 0; i < NAMES + THREADS; i++) {
			char name[2] = { (char)('a' + i), '\0' };
			uint64_t found = find(7, name);

			assert(found == 0 || found == table[i]);
			assert(!lacks(7, name) || table[i] == 0);
		}
	}
}

int main(void)
{
	what_was_answered_is_known();
	what_failed_is_forgotten();
	a_change_of_an_attribute_touches_no_name();
	a_rename_between_two_names_of_a_file_takes_none();
	no_order_of_answers_hides_a_file_or_shows_one_that_is_gone();
	long_names_are_not_kept();
	many_at_once_leave_nothing_wrong();
	puts("all passed");
	return 0;
}
