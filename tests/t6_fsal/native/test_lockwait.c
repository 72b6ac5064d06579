/* Tests of LOCKs that wait, without Ganesha. */
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lockwait.h"
#include "util.h"

#undef NDEBUG

#define INO 7u
#define END UINT64_MAX
#define AT_ONCE_MS (SPW_LOCK_WAIT_MS / 2) /* more than a busy machine holds a thread up */
#define THREADS 8u
#define ROUNDS 200u

/* Return a lock as its owner has it. */
static struct spw_lock of(char owner, uint64_t first, uint64_t last, bool is_exclusive)
{
	struct spw_lock lock = {
		.ino = INO, .first = first, .last = last, .is_exclusive = is_exclusive,
		.owner = spw_lock_owner(1, &owner, 1),
	};

	lock.stateid[0] = owner;
	return lock;
}

static void grant(char owner, uint64_t first, uint64_t last, bool is_exclusive)
{
	struct spw_lock lock = of(owner, first, last, is_exclusive);

	spw_lock_granted(&lock);
}

static void release(char owner, uint64_t first, uint64_t last)
{
	struct spw_lock lock = of(owner, first, last, false);

	spw_lock_released(&lock);
}

static atomic_bool is_gone;

static bool is_asked(void)
{
	return !atomic_load(&is_gone);
}

/* Wait as one that asks by its name, or by its stateid. Return for how many milliseconds. */
static uint64_t waited_ms(struct spw_lock wanted, bool is_by_state)
{
	uint64_t began = spw_clock_ms();

	wanted.is_by_state = is_by_state;
	if (is_by_state)
		wanted.owner = 0;
	else
		memset(wanted.stateid, 0, sizeof(wanted.stateid));
	spw_lock_wait(&wanted, is_asked);
	return spw_clock_ms() - began;
}

static bool waits(char owner, uint64_t first, uint64_t last, bool is_exclusive)
{
	static bool is_by_state;
	uint64_t took_ms;

	is_by_state = !is_by_state;
	took_ms = waited_ms(of(owner, first, last, is_exclusive), is_by_state);
	assert(took_ms >= SPW_LOCK_WAIT_MS || took_ms < AT_ONCE_MS);
	return took_ms >= SPW_LOCK_WAIT_MS;
}

static void only_what_would_be_denied_waits(void)
{
	assert(!waits('b', 0, END, true));
	grant('a', 10, 19, true);
	assert(waits('b', 0, END, true) && waits('b', 19, 19, false) && waits('b', 0, 10, false));
	assert(!waits('b', 0, 9, true) && !waits('b', 20, END, true));
	for (int i = 0; i < 2; i++)
		assert(!waits('a', 0, END, true)); /* its own, by both names */
	grant('a', 10, 19, false); /* downgraded */
	assert(!waits('b', 0, END, false) && waits('b', 15, 15, true));
	release('a', 0, END);
	assert(!waits('b', 0, END, true));
}

/* Both clients and owners have numbers that follow each other. */
static void owners_have_different_numbers(void)
{
	static uint64_t seen[64];
	unsigned int count = 0;

	for (uint64_t client = 2; client < 10; client++)
		for (char name = '0'; name < '8'; name++) {
			uint64_t owner = spw_lock_owner(client, &name, 1);

			for (unsigned int i = 0; i < count; i++)
				assert(seen[i] != owner);
			seen[count++] = owner;
		}
}

static void parts_of_a_range_are_released(void)
{
	grant('a', 0, END, true);
	release('a', 10, 19);
	assert(!waits('b', 10, 19, true) && waits('b', 9, 9, true) && waits('b', 20, 20, true));
	grant('a', 5, 9, false);
	assert(!waits('b', 5, 9, false) && waits('b', 4, 4, false) && waits('b', 5, 5, true));
	release('b', 0, END); /* another's */
	release('a', 0, 4);
	assert(!waits('b', 0, 9, false) && waits('b', END, END, false));
	release('a', 20, END);
	release('a', 9, 9);
	assert(!waits('b', 9, END, true) && waits('b', 8, 9, true));
	release('a', 5, 8);
	assert(!waits('b', 0, END, true));
}

static void locks_of_a_state_that_is_gone_are_forgotten(void)
{
	grant('a', 0, 9, true);
	grant('a', 20, 29, true);
	grant('c', 40, 49, true);
	spw_lock_forgotten(INO + 1, "a\0\0\0\0\0\0\0\0\0\0");
	assert(waits('b', 0, 9, true));
	spw_lock_forgotten(INO, "a\0\0\0\0\0\0\0\0\0\0");
	assert(!waits('b', 0, 39, true) && waits('b', 0, END, true));
	release('c', 0, END);
}

/* A client that locks byte by byte takes no more memory than others leave it. */
static void more_locks_than_are_kept_are_not_waited_for(void)
{
	for (uint64_t i = 0; i < 1000; i++)
		grant('a', 2 * i, 2 * i, true);
	assert(waits('b', 0, 0, true) && !waits('b', 1998, 1998, true));
	for (uint64_t i = 0; i < 1000; i++)
		release('a', 2 * i, 2 * i);
	grant('c', 1998, 1998, true);
	assert(waits('b', 1998, 1998, true));
	release('c', 0, END);
}

struct asker {
	pthread_t thread;
	char owner;
	uint64_t waited_ms;
	atomic_bool done;
};

static void *ask(void *argument)
{
	struct asker *asker = argument;

	asker->waited_ms = waited_ms(of(asker->owner, 0, END, true), false);
	atomic_store(&asker->done, true);
	return NULL;
}

static void begin(struct asker *asker, char owner)
{
	asker->owner = owner;
	atomic_store(&asker->done, false);
	assert(pthread_create(&asker->thread, NULL, ask, asker) == 0);
	usleep(50 * 1000); /* so they come one after the other */
}

static void end(struct asker *asker)
{
	pthread_join(asker->thread, NULL);
}

static void they_go_on_in_the_order_in_which_they_came(void)
{
	struct asker first, second, late;

	grant('a', 0, END, true);
	begin(&first, 'b');
	begin(&second, 'c');
	assert(!atomic_load(&first.done) && !atomic_load(&second.done));
	release('a', 0, END);
	end(&first);
	begin(&late, 'a'); /* the one that had the lock is back before the first one has it */
	assert(!atomic_load(&late.done) && !atomic_load(&second.done));
	grant('b', 0, END, true);
	release('b', 0, END);
	end(&second);
	grant('c', 0, END, true);
	release('c', 0, END);
	end(&late);
	grant('a', 0, END, true);
	release('a', 0, END);
	assert(first.waited_ms < SPW_LOCK_WAIT_MS && second.waited_ms < SPW_LOCK_WAIT_MS);
	assert(!waits('d', 0, END, true)); /* no turn is left over */
}

static void a_turn_that_is_not_taken_ends(void)
{
	struct asker first, second;

	grant('a', 0, END, true);
	begin(&first, 'b');
	begin(&second, 'c');
	release('a', 0, END);
	end(&first);
	end(&second);
	assert(second.waited_ms >= SPW_LOCK_TURN_MS && second.waited_ms < SPW_LOCK_WAIT_MS);
	usleep((SPW_LOCK_TURN_MS + 10) * 1000);
	assert(!waits('d', 0, END, true));
}

static void one_more_than_may_wait_is_answered_at_once(void)
{
	struct asker askers[SPW_LOCK_WAITERS_MAX];

	grant('a', 0, END, true);
	for (unsigned int i = 0; i < SPW_LOCK_WAITERS_MAX; i++)
		begin(&askers[i], (char)('b' + i));
	assert(waited_ms(of('z', 0, END, true), false) < AT_ONCE_MS);
	for (unsigned int i = 0; i < SPW_LOCK_WAITERS_MAX; i++) {
		end(&askers[i]);
		assert(askers[i].waited_ms >= SPW_LOCK_WAIT_MS);
	}
	assert(waits('z', 0, END, true));
	release('a', 0, END);
}

static void a_client_that_is_gone_does_not_wait(void)
{
	struct asker asker;

	grant('a', 0, END, true);
	begin(&asker, 'b');
	atomic_store(&is_gone, true);
	end(&asker);
	assert(asker.waited_ms <= SPW_LOCK_TURN_MS + AT_ONCE_MS);
	atomic_store(&is_gone, false);
	release('a', 0, END);
}

/* As Ganesha does: one mutex decides. */
static pthread_mutex_t states = PTHREAD_MUTEX_INITIALIZER;
static char has_lock;

static void *contend(void *argument)
{
	char owner = *(char *)argument;

	for (unsigned int done = 0; done < ROUNDS;) {
		bool granted;

		(void)waited_ms(of(owner, 0, END, true), false);
		pthread_mutex_lock(&states);
		granted = has_lock == 0;
		if (granted) {
			has_lock = owner;
			grant(owner, 0, END, true);
		}
		pthread_mutex_unlock(&states);
		if (!granted)
			continue;
		usleep(100);
		pthread_mutex_lock(&states);
		has_lock = 0;
		release(owner, 0, END);
		pthread_mutex_unlock(&states);
		done++;
	}
	return NULL;
}

static void many_contend(void)
{
	static char owners[] = "abcdefgh";
	pthread_t threads[THREADS];

	for (unsigned int i = 0; i < THREADS; i++)
		assert(pthread_create(&threads[i], NULL, contend, &owners[i]) == 0);
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert(!waits('z', 0, END, true));
}

int main(void)
{
	spw_lockwait_start();
	owners_have_different_numbers();
	only_what_would_be_denied_waits();
	parts_of_a_range_are_released();
	locks_of_a_state_that_is_gone_are_forgotten();
	more_locks_than_are_kept_are_not_waited_for();
	they_go_on_in_the_order_in_which_they_came();
	a_turn_that_is_not_taken_ends();
	one_more_than_may_wait_is_answered_at_once();
	a_client_that_is_gone_does_not_wait();
	many_contend();
	puts("all passed");
	return 0;
}
