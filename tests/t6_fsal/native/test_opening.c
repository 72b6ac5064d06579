/* Tests of OPENs and CLOSEs of one state that come at the same time, without Ganesha. */
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "closing.h"
#include "util.h"

#undef NDEBUG

#define INO 7u
#define AT_ONCE_MS (SPW_OPENING_MS / 2) /* more than a busy machine holds a thread up */
#define ROUNDS 1000u

/* An open state as Ganesha has it. */
struct open_state {
	char stateid[SPW_STATEID_BYTES];
	volatile uint32_t seqid;
	struct spw_opening opening;
};

/* Give a state its next seqid, as Ganesha does behind the OPEN. */
static void count_up(struct open_state *state)
{
	__atomic_add_fetch(&state->seqid, 1, __ATOMIC_RELEASE);
}

static void open_first(struct open_state *state, const char *name)
{
	memset(state->stateid, 0, sizeof(state->stateid));
	strncpy(state->stateid, name, sizeof(state->stateid) - 1);
	__atomic_store_n(&state->seqid, 0, __ATOMIC_RELEASE);
	spw_opening_begin(&state->opening, INO, state->stateid, &state->seqid);
	count_up(state);
}

/* Begin a CLOSE. Return for how many milliseconds it waited. */
static uint64_t close_ms(const struct open_state *state, uint32_t seqid)
{
	struct spw_close close = { .stateid = state->stateid, .seqid = seqid };
	uint64_t began = spw_clock_ms();

	spw_opening_close(INO, &close);
	return spw_clock_ms() - began;
}

static bool may_open(struct open_state *state)
{
	return spw_opening_again(&state->opening, false);
}

static void an_open_does_not_change_a_state_that_is_being_closed(void)
{
	struct open_state one = { 0 }, other = { 0 };

	open_first(&one, "one");
	open_first(&other, "other");
	assert(close_ms(&one, 1) < AT_ONCE_MS);
	assert(!may_open(&one));
	assert(may_open(&other));
	count_up(&other);
	spw_opening_end(&one.opening);
	spw_opening_end(&other.opening);
}

static void a_close_that_failed_keeps_opens_away_for_a_while_only(void)
{
	struct open_state state = { 0 };

	open_first(&state, "state");
	assert(close_ms(&state, 0) < AT_ONCE_MS);
	while (!may_open(&state))
		usleep(1000);
	count_up(&state);
	/* A downgrade comes itself after it was announced. */
	assert(close_ms(&state, 2) < AT_ONCE_MS);
	assert(spw_opening_again(&state.opening, true));
	count_up(&state);
	assert(may_open(&state));
	spw_opening_end(&state.opening);
}

static void an_old_close_waits_for_nothing_and_keeps_nothing_away(void)
{
	struct open_state state = { 0 };

	open_first(&state, "state");
	assert(may_open(&state));
	count_up(&state);
	assert(may_open(&state));
	assert(close_ms(&state, 1) < AT_ONCE_MS);
	assert(may_open(&state));
	spw_opening_end(&state.opening);
	assert(close_ms(&state, 4) < AT_ONCE_MS); /* of a state that is gone */
}

static void an_open_that_never_counts_up_is_not_waited_for_long(void)
{
	struct open_state state = { 0 };

	open_first(&state, "state");
	assert(may_open(&state));
	assert(close_ms(&state, 1) >= SPW_OPENING_MS - 1);
	assert(may_open(&state)); /* what came before it is not added */
	count_up(&state);
	assert(may_open(&state));
	spw_opening_failed(&state.opening);
	assert(close_ms(&state, 2) < AT_ONCE_MS);
	spw_opening_end(&state.opening);
}

static void *open_late(void *argument)
{
	usleep(20000);
	count_up(argument);
	return NULL;
}

static void a_close_waits_for_an_open_that_has_no_seqid_yet(void)
{
	struct open_state state = { 0 };
	pthread_t opener;

	open_first(&state, "state");
	assert(may_open(&state));
	assert(pthread_create(&opener, NULL, open_late, &state) == 0);
	(void)close_ms(&state, 1);
	assert(__atomic_load_n(&state.seqid, __ATOMIC_ACQUIRE) == 2);
	assert(may_open(&state)); /* the CLOSE is old, and is refused */
	pthread_join(opener, NULL);
	spw_opening_end(&state.opening);
}

/* Ganesha's lock of the states of a file. */
static pthread_mutex_t states = PTHREAD_MUTEX_INITIALIZER;
static struct open_state contended;
static bool is_there;
static atomic_uint closed;
static atomic_bool is_over;

static void *open_again(void *argument)
{
	unsigned int number = 0;

	(void)argument;
	while (atomic_load(&closed) < ROUNDS) {
		char name[SPW_STATEID_BYTES];
		bool is_new, changes;

		pthread_mutex_lock(&states);
		is_new = !is_there;
		if (is_new) {
			snprintf(name, sizeof(name), "%u", number++);
			open_first(&contended, name);
		}
		is_there = true;
		changes = !is_new && may_open(&contended);
		pthread_mutex_unlock(&states);
		if (changes)
			count_up(&contended);
		usleep(1);
	}
	atomic_store(&is_over, true);
	return NULL;
}

/* Do what Ganesha does first: it finds the state of the CLOSE, and compares its seqid. */
static bool is_current(const struct spw_close *close)
{
	bool is;

	pthread_mutex_lock(&states);
	is = is_there && memcmp(contended.stateid, close->stateid, SPW_STATEID_BYTES) == 0 &&
	     __atomic_load_n(&contended.seqid, __ATOMIC_ACQUIRE) == close->seqid;
	pthread_mutex_unlock(&states);
	return is;
}

static void *close_again(void *argument)
{
	char stateid[SPW_STATEID_BYTES];
	struct spw_close close = { .stateid = stateid };

	(void)argument;
	while (!atomic_load(&is_over)) {
		pthread_mutex_lock(&states);
		memcpy(stateid, contended.stateid, sizeof(stateid));
		close.seqid = __atomic_load_n(&contended.seqid, __ATOMIC_ACQUIRE);
		pthread_mutex_unlock(&states);
		if (close.seqid == 0)
			continue; /* No client knows it yet. */
		spw_opening_close(INO, &close);
		if (!is_current(&close))
			continue;
		usleep(1);
		/* Now it takes the state, which only this thread does. */
		pthread_mutex_lock(&states);
		assert(contended.seqid == close.seqid); /* no OPEN was answered meanwhile */
		assert(contended.opening.due_seqid == close.seqid); /* and none is to be */
		spw_opening_end(&contended.opening);
		is_there = false;
		pthread_mutex_unlock(&states);
		atomic_fetch_add(&closed, 1);
	}
	return NULL;
}

static void a_state_of_which_an_open_was_answered_is_there(void)
{
	pthread_t opener, closer;

	assert(pthread_create(&opener, NULL, open_again, NULL) == 0);
	assert(pthread_create(&closer, NULL, close_again, NULL) == 0);
	pthread_join(opener, NULL);
	pthread_join(closer, NULL);
}

int main(void)
{
	an_open_does_not_change_a_state_that_is_being_closed();
	a_close_that_failed_keeps_opens_away_for_a_while_only();
	an_old_close_waits_for_nothing_and_keeps_nothing_away();
	an_open_that_never_counts_up_is_not_waited_for_long();
	a_close_waits_for_an_open_that_has_no_seqid_yet();
	a_state_of_which_an_open_was_answered_is_there();
	puts("all passed");
	return 0;
}
