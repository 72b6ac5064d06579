/* Tests of the names that a new directory cannot have. */
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "bridge.h"
#include "names.h"

#undef NDEBUG

/* The distance to another directory of the same slot. */
#define AFAR 1024u

static bool lacks(uint64_t dir, const char *name)
{
	return spw_fresh_lacks(dir, name, (uint32_t)strlen(name));
}

static void name(uint64_t dir, const char *text)
{
	struct spw_request request = {
		.ino = dir, .name = text, .name_len = (uint32_t)strlen(text),
	};

	spw_fresh_change(SPW_CREATE, &request);
}

static void took(enum spw_op op, uint64_t dir, const char *text, uint64_t parent)
{
	struct spw_request request = {
		.ino = dir, .name = text, .name_len = (uint32_t)strlen(text),
	};
	struct spw_reply reply = { .parent.ino = parent };

	spw_fresh_changed(op, &request, &reply);
}

static void every_way_to_make_a_name_counts(void)
{
	static const enum spw_op makes[] = { SPW_CREATE, SPW_MKDIR, SPW_SYMLINK_OP, SPW_MKNOD,
					     SPW_LINK, SPW_RENAME };
	struct spw_request request = { .ino = 6, .ino2 = 6 + 1, .name = "one", .name2 = "two",
				       .name_len = 3, .name2_len = 3 };

	for (unsigned int i = 0; i < sizeof(makes) / sizeof(makes[0]); i++) {
		bool renames = makes[i] == SPW_RENAME;

		spw_fresh_made(6, spw_fresh_begin());
		spw_fresh_made(7, spw_fresh_begin());
		spw_fresh_change(makes[i], &request);
		assert(lacks(6, "one") == renames && lacks(6, "two"));
		assert(lacks(7, "two") == !renames && lacks(7, "one"));
	}
	spw_fresh_change(SPW_REMOVE, &request);
	assert(lacks(6, "one"));
}

static void nothing_is_known_of_an_older_directory(void)
{
	assert(!lacks(5, "a"));
	name(5, "a");
	assert(!lacks(5, "a") && !lacks(5, "b"));
}

static void a_new_directory_has_what_was_made_in_it(void)
{
	spw_fresh_made(8, spw_fresh_begin());
	assert(lacks(8, "a") && lacks(8, "b"));
	name(8, "a");
	assert(!lacks(8, "a") && lacks(8, "b") && lacks(8, ""));
	took(SPW_REMOVE, 8, "a", 8);
	assert(lacks(8, "a"));
}

static void a_name_made_anew_while_it_is_removed_stays(void)
{
	spw_fresh_made(8, spw_fresh_begin());
	name(8, "a");
	name(8, "a"); /* after the commit of the removal, before its answer */
	took(SPW_REMOVE, 8, "a", 8);
	assert(!lacks(8, "a"));
	took(SPW_CREATE, 8, "a", 8);
	assert(!lacks(8, "a"));
}

static void a_rename_takes_the_old_name_unless_both_stay(void)
{
	spw_fresh_made(8, spw_fresh_begin());
	name(8, "a");
	took(SPW_RENAME, 8, "a", 0);
	assert(!lacks(8, "a"));
	took(SPW_RENAME, 8, "a", 8);
	assert(lacks(8, "a"));
}

static void a_full_count_is_never_taken_for_a_small_one(void)
{
	spw_fresh_made(8, spw_fresh_begin());
	for (int i = 0; i < 300; i++)
		name(8, "a");
	for (int i = 0; i < 299; i++)
		took(SPW_REMOVE, 8, "a", 8);
	assert(!lacks(8, "a"));
}

static void many_names_are_all_remembered(void)
{
	char text[32];
	int missed = 0;

	spw_fresh_made(9, spw_fresh_begin());
	for (int i = 0; i < 20000; i++) {
		snprintf(text, sizeof(text), "shard-%d", i);
		name(9, text);
		assert(!lacks(9, text));
		snprintf(text, sizeof(text), "other-%d", i);
		if (i < 2000)
			missed += !lacks(9, text);
	}
	assert(missed < 200); /* most of 2,000 absent names are still known to be absent */
}

static void who_comes_before_the_answer_is_not_overlooked(void)
{
	/* Another client saw the directory and made a name in it before the answer to its maker. */
	uint64_t began = spw_fresh_begin();

	name(10, "early");
	spw_fresh_made(10, began);
	assert(!lacks(10, "early") && !lacks(10, "late"));
	/* The same happens while another directory has the slot. */
	spw_fresh_made(11, spw_fresh_begin());
	began = spw_fresh_begin();
	name(11 + AFAR, "early");
	spw_fresh_made(11 + AFAR, began);
	assert(!lacks(11 + AFAR, "early"));
	assert(lacks(11, "x"));
}

static void directories_of_one_slot_push_each_other_out(void)
{
	spw_fresh_made(12, spw_fresh_begin());
	name(12, "a");
	spw_fresh_made(12 + AFAR, spw_fresh_begin());
	assert(!lacks(12, "a") && !lacks(12, "b"));
	assert(lacks(12 + AFAR, "a"));
}

static void a_directory_that_is_gone_has_another_answer(void)
{
	struct spw_request request = { .ino = 1, .name = "dir", .name_len = 3 };
	struct spw_reply removed = { .removed.kind = SPW_DIRECTORY };

	spw_fresh_made(13, spw_fresh_begin());
	assert(lacks(13, "a"));
	removed.removed.ino = 13 + AFAR;
	spw_fresh_changed(SPW_REMOVE, &request, &removed);
	assert(lacks(13, "a"));
	removed.removed.ino = 13;
	spw_fresh_changed(SPW_REMOVE, &request, &removed);
	assert(!lacks(13, "a"));
}

enum { THREADS = 4, NAMES = 2000 };

static void *maker(void *argument)
{
	char text[32];

	for (int i = 0; i < NAMES; i++) {
		snprintf(text, sizeof(text), "%d-%d", *(int *)argument, i);
		name(14, text);
		assert(!lacks(14, text));
	}
	return NULL;
}

static void makers_do_not_lose_each_others_names(void)
{
	static int numbers[THREADS];
	pthread_t threads[THREADS];
	char text[32];

	spw_fresh_made(14, spw_fresh_begin());
	for (int i = 0; i < THREADS; i++) {
		numbers[i] = i;
		assert(pthread_create(&threads[i], NULL, maker, &numbers[i]) == 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < THREADS * NAMES; i++) {
		snprintf(text, sizeof(text), "%d-%d", i / NAMES, i % NAMES);
		assert(!lacks(14, text));
	}
}

int main(void)
{
	nothing_is_known_of_an_older_directory();
	every_way_to_make_a_name_counts();
	a_new_directory_has_what_was_made_in_it();
	a_name_made_anew_while_it_is_removed_stays();
	a_rename_takes_the_old_name_unless_both_stay();
	a_full_count_is_never_taken_for_a_small_one();
	many_names_are_all_remembered();
	who_comes_before_the_answer_is_not_overlooked();
	directories_of_one_slot_push_each_other_out();
	a_directory_that_is_gone_has_another_answer();
	makers_do_not_lose_each_others_names();
	puts("all passed");
	return 0;
}
