/* Tests of CLOSEs that wait for the bucket, without Ganesha and without Python. */
#include "fake_namespace.h"

#include "util.h"
#include "closing.h"

#define LIMIT_MS 1000u /* more than a busy machine holds a thread up */

/* An open state as Ganesha has it. */
struct open_state {
	char stateid[SPW_STATEID_BYTES];
	volatile uint32_t seqid;
	struct spw_closing closing;
};

static void open_for_writing(struct open_state *state, struct spw_inode *inode, const char *name)
{
	memset(state, 0, sizeof(*state));
	strncpy(state->stateid, name, sizeof(state->stateid) - 1);
	state->seqid = 2;
	assert(spw_writer_begin(inode, NULL) == 0);
	assert(!spw_closing_begin(&state->closing, inode, state->stateid, &state->seqid));
}

/* Close as close2 does. */
static void close_state(struct open_state *state, struct spw_inode *inode)
{
	if (spw_closing_end(&state->closing))
		spw_writer_end(inode);
	settle();
}

static int try_close(const struct open_state *state, uint64_t ino, uint32_t seqid, bool *told)
{
	struct spw_close close = { .stateid = state->stateid, .seqid = seqid, .is_plain = true };

	return spw_closing_try(ino, &close, told);
}

static void a_close_that_waits_seals_the_file(void)
{
	struct spw_inode *inode = fresh();
	struct open_state one, two;
	bool told;

	atomic_store(&acknowledge_answer, SPW_ACK_WAITS);
	open_for_writing(&one, inode, "one");
	open_for_writing(&two, inode, "two");
	assert(put(inode, "abc", 0, false) == 0);
	assert(try_close(&one, inode->ino, 2, &told) == EAGAIN && !told);
	settle();
	assert(ns.seals == 0); /* the other one writes */
	close_state(&two, inode);
	assert(ns.seals == 1);
	/* Reopened by its owner, it writes a new version, and only one writer is counted. */
	assert(spw_writer_begin(inode, NULL) == 0);
	assert(!spw_closing_begin(&one.closing, inode, one.stateid, &one.seqid));
	assert(ns.opens == 2);
	assert(spw_writer_begin(inode, NULL) == 0);
	assert(spw_closing_begin(&one.closing, inode, one.stateid, &one.seqid));
	spw_writer_end(inode);
	close_state(&one, inode);
	assert(inode->writers == 0);
	/* A state that is gone waits for nothing. */
	assert(try_close(&one, inode->ino, 2, &told) == 0);
	spw_inode_put(inode);
}

static void only_the_present_stateid_is_meant(void)
{
	struct spw_inode *inode = fresh();
	struct open_state state;
	bool told;

	open_for_writing(&state, inode, "state");
	atomic_store(&acknowledge_answer, SPW_ACK_WAITS);
	assert(try_close(&state, inode->ino, 1, &told) == 0); /* old: Ganesha refuses it */
	assert(try_close(&state, inode->ino + 1, 2, &told) == 0);
	assert(atomic_load(&state.closing.writes));
	assert(try_close(&state, inode->ino, 0, &told) == EAGAIN);
	assert(!atomic_load(&state.closing.writes));
	close_state(&state, inode);
	spw_inode_put(inode);
}

static void a_client_that_gave_up_waits_anew(void)
{
	struct spw_inode *inode = fresh();
	struct open_state state;
	uint64_t began;
	int asked, rc;
	bool told = false;

	open_for_writing(&state, inode, "state");
	atomic_store(&acknowledge_answer, SPW_ACK_WAITS);
	atomic_store(&acknowledge_asked, 0);
	for (int round = 0; round < 2; round++) {
		began = spw_clock_ms();
		while ((rc = try_close(&state, inode->ino, 2, &told)) == EAGAIN)
			usleep(1000);
		assert(rc == EIO && told && spw_clock_ms() - began >= LIMIT_MS);
		assert(try_close(&state, inode->ino, 2, &told) == EIO && !told);
		usleep((SPW_CLOSING_ABANDONED_MS + 50) * 1000);
	}
	asked = atomic_load(&acknowledge_asked);
	assert(asked >= 2 && asked <= 50); /* the others were answered without the namespace */
	/* The namespace cannot answer: nothing is promised. */
	atomic_store(&acknowledge_answer, SPW_ACK_LOCAL);
	atomic_store(&acknowledge_fails, EAGAIN);
	assert(try_close(&state, inode->ino, 2, &told) == EAGAIN);
	usleep(100 * 1000);
	atomic_store(&acknowledge_fails, 0);
	assert(try_close(&state, inode->ino, 2, &told) == 0);
	close_state(&state, inode);
	spw_inode_put(inode);
}

static void only_an_answer_makes_the_error(void)
{
	struct spw_inode *inode = fresh();
	struct open_state state;
	uint64_t began = spw_clock_ms();
	bool told;

	/* Without an answer it may be a file of no rule: it waits, also after the time. */
	open_for_writing(&state, inode, "state");
	atomic_store(&acknowledge_answer, SPW_ACK_WAITS);
	atomic_store(&acknowledge_fails, EAGAIN);
	while (spw_clock_ms() - began < LIMIT_MS + 100) {
		assert(try_close(&state, inode->ino, 2, &told) == EAGAIN && !told);
		usleep(1000);
	}
	assert(atomic_load(&state.closing.writes));
	atomic_store(&acknowledge_fails, 0);
	usleep(100 * 1000);
	assert(try_close(&state, inode->ino, 2, &told) == EIO && told);
	close_state(&state, inode);
	/* A damaged file is never uploaded: the error comes at once. */
	open_for_writing(&state, inode, "again");
	atomic_store(&acknowledge_answer, SPW_ACK_FAILED);
	assert(try_close(&state, inode->ino, 2, &told) == EIO && told);
	assert(try_close(&state, inode->ino, 2, &told) == EIO && !told);
	/* It was emptied: what is written now can be waited for. */
	atomic_store(&acknowledge_answer, SPW_ACK_WAITS);
	usleep(100 * 1000);
	assert(try_close(&state, inode->ino, 2, &told) == EAGAIN);
	assert(try_close(&state, inode->ino, 2, &told) == EAGAIN);
	close_state(&state, inode);
	spw_inode_put(inode);
}

static void a_close_without_a_stateid_is_refused(void)
{
	static const char current[SPW_STATEID_BYTES];
	struct spw_close close = { .stateid = current, .seqid = 1, .is_current = true };
	struct spw_inode *inode = fresh();
	struct open_state state;
	bool told;

	atomic_store(&acknowledge_answer, SPW_ACK_WAITS);
	assert(spw_closing_try(inode->ino, &close, &told) == 0); /* there is no writer */
	open_for_writing(&state, inode, "state");
	assert(spw_closing_try(inode->ino, &close, &told) == ENOTSUP);
	atomic_store(&acknowledge_fails, EAGAIN);
	assert(spw_closing_try(inode->ino, &close, &told) == EAGAIN);
	atomic_store(&acknowledge_fails, 0);
	atomic_store(&acknowledge_answer, SPW_ACK_LOCAL);
	assert(spw_closing_try(inode->ino, &close, &told) == 0);
	close_state(&state, inode);
	close.is_opened = true;
	atomic_store(&acknowledge_answer, SPW_ACK_WAITS);
	assert(spw_closing_try(inode->ino, &close, &told) == ENOTSUP);
	spw_inode_put(inode);
}

static struct open_state reopened;
static struct spw_inode *reopened_inode;

static void reopen(void)
{
	assert(spw_writer_begin(reopened_inode, NULL) == 0);
	if (spw_closing_begin(&reopened.closing, reopened_inode, reopened.stateid, &reopened.seqid))
		spw_writer_end(reopened_inode);
}

static void expire(void)
{
	close_state(&reopened, reopened_inode);
}

static void an_answer_is_not_of_an_open_that_came_meanwhile(void)
{
	const int answers[] = { SPW_ACK_STORED, SPW_ACK_WAITS };
	struct spw_inode *inode = reopened_inode = fresh();
	bool told;

	for (int i = 0; i < 2; i++) {
		atomic_store(&acknowledge_answer, answers[i]);
		open_for_writing(&reopened, inode, "reopened");
		acknowledge_meanwhile = reopen;
		assert(try_close(&reopened, inode->ino, 2, &told) == EAGAIN);
		assert(atomic_load(&reopened.closing.writes) && inode->writers == 1);
		acknowledge_meanwhile = expire;
		assert(try_close(&reopened, inode->ino, 2, &told) == EAGAIN);
		acknowledge_meanwhile = NULL;
		assert(inode->writers == 0);
		assert(try_close(&reopened, inode->ino, 2, &told) == 0);
	}
	spw_inode_put(inode);
}

static struct open_state raced;
static struct spw_inode *raced_inode;
static atomic_bool over;

static void *closes(void *argument)
{
	(void)argument;
	while (!atomic_load(&over)) {
		bool told;

		(void)try_close(&raced, raced_inode->ino, 0, &told);
	}
	return NULL;
}

static void a_close_races_with_opens_and_the_end_of_the_lease(void)
{
	struct spw_inode *inode = fresh();
	pthread_t threads[2];

	raced_inode = inode;
	memset(&raced, 0, sizeof(raced));
	memcpy(raced.stateid, "raced", 5);
	atomic_store(&acknowledge_answer, SPW_ACK_WAITS);
	for (int i = 0; i < 2; i++)
		assert(pthread_create(&threads[i], NULL, closes, NULL) == 0);
	for (int i = 0; i < 2000; i++) {
		assert(spw_writer_begin(inode, NULL) == 0);
		if (spw_closing_begin(&raced.closing, inode, raced.stateid, &raced.seqid))
			spw_writer_end(inode);
		if (i % 3 != 0 && spw_closing_end(&raced.closing))
			spw_writer_end(inode);
	}
	atomic_store(&over, true);
	for (int i = 0; i < 2; i++)
		assert(pthread_join(threads[i], NULL) == 0);
	close_state(&raced, inode);
	assert(inode->writers == 0 && !inode->write_open);
	spw_inode_put(inode);
}

int main(int argc, char **argv)
{
	assert(argc == 2);
	fake_namespace_start(argv[1]);
	spw_closing_start(true, LIMIT_MS);
	a_close_that_waits_seals_the_file();
	only_the_present_stateid_is_meant();
	a_client_that_gave_up_waits_anew();
	only_an_answer_makes_the_error();
	a_close_without_a_stateid_is_refused();
	an_answer_is_not_of_an_open_that_came_meanwhile();
	a_close_races_with_opens_and_the_end_of_the_lease();
	puts("all passed");
	return 0;
}
