/* Tests of hydrators that follow each other: what one of them began is not the next one's ruin. */
#include "fake_cold.h"

struct arrival {
	struct spw_inode *inode;
	int rc;
};

static void *arrive(void *argument)
{
	struct arrival *arrival = argument;

	arrival->rc = arrived(arrival->inode, 3, VERSION);
	return NULL;
}

/* An ARRIVED of a hydrator that died is in the namespace. Its successor is handed nothing until the
 * answer, or it would overwrite what clients write after it. */
static void nothing_is_handed_out_while_an_older_arrival_runs(void)
{
	struct arrival arrival = { .inode = absent(4) };
	struct spw_inode *inode = arrival.inode;
	struct spw_control_reply reply;
	pthread_t worker;

	assert(read_at(inode, 0, 1) == EINPROGRESS);
	hand_out(0, 4);
	hydrate(inode, 0, "abcd");
	atomic_store(&arrived_began, false);
	atomic_store(&arrived_held, true);
	assert(pthread_create(&worker, NULL, arrive, &arrival) == 0);
	while (!atomic_load(&arrived_began))
		usleep(1000);
	assert(next_range(session, &reply) == 0); /* its own session continues */
	assert(next_range(session + 1, &reply) == EBUSY && reply.attr.ino == 0);
	assert(next_range(session + 2, &reply) == EBUSY && reply.attr.ino == 0);
	atomic_store(&arrived_held, false);
	pthread_join(worker, NULL);
	assert(arrival.rc == 0);
	session += 2;
	hand_out(0, 0);
	expect(inode, 0, 8, "abcd", true);
	spw_inode_put(inode);
}

/* An ARRIVED or a WANTED of a hydrator that died comes late. */
static void a_session_that_was_followed_is_refused(void)
{
	struct spw_inode *inode = absent(4);
	struct spw_control_reply reply;

	assert(arrived(inode, 3, VERSION) == ESTALE); /* it has asked for nothing yet */
	assert(read_at(inode, 0, 1) == EINPROGRESS);
	hand_out(0, 4);
	hydrate(inode, 0, "abcd");
	session++;
	hand_out(0, 4);
	session--;
	assert(arrived(inode, 3, VERSION) == ESTALE);
	assert(next_range(session, &reply) == ESTALE && reply.attr.ino == 0);
	assert(arrived(inode, 3, VERSION) == ESTALE);
	assert(ns.row.residency == SPW_ABSENT && has_epoch(inode->ino, 3));
	session++;
	assert(arrived(inode, 3, VERSION) == 0);
	expect(inode, 0, 8, "abcd", true);
	spw_inode_put(inode);
}

/* The hydrator died when all bytes were here, and before it said that the file has arrived. */
static void its_successor_looks_at_a_file_that_is_here(void)
{
	struct spw_inode *inode = absent(2 * (uint64_t)G + 4);

	assert(spw_want_all(inode) == EAGAIN);
	hand_out(0, 2 * (uint64_t)G + 4);
	hydrate(inode, 2 * (uint64_t)G, "abcd");
	assert(present(inode, 0, 2 * (uint64_t)G + 4) == 0);
	expect(inode, 2 * (uint64_t)G, 8, "abcd", true);
	session++;
	hand_out(2 * (uint64_t)G, 4);
	assert(read_at(inode, 2 * (uint64_t)G, 4) == EINPROGRESS && read_at(inode, 0, 1) == 0);
	assert(present(inode, 2 * (uint64_t)G, 4) == 0);
	assert(put(inode, "x", 0, true) == EAGAIN);
	hand_out(0, 0); /* it is asked once */
	assert(arrived(inode, 3, VERSION) == 0);
	assert(put(inode, "x", 0, true) == 0);
	settle();
	spw_inode_put(inode);
}

/* No bytes are missing, and a call needs the whole file. */
static void who_needs_the_whole_file_asks_again_for_its_end(void)
{
	struct spw_inode *inode = absent(G + 4);

	assert(read_at(inode, 0, 1) == EINPROGRESS && read_at(inode, G, 4) == EINPROGRESS);
	hand_out(0, G + 4);
	hydrate(inode, G, "abcd");
	assert(present(inode, 0, G + 4) == 0);
	hand_out(0, 0);
	for (int i = 0; i < 2; i++) {
		assert(put(inode, "x", 0, true) == EAGAIN && spw_truncate(inode, 9) == EAGAIN);
		hand_out(G, i == 0 ? 4 : 0);
		assert(present(inode, G, 4) == 0);
	}
	spw_inode_put(inode);
}

int main(int argc, char **argv)
{
	assert(argc == 2);
	fake_namespace_start(argv[1]);
	assert(spw_cold_start(0) == 0);
	nothing_is_handed_out_while_an_older_arrival_runs();
	a_session_that_was_followed_is_refused();
	its_successor_looks_at_a_file_that_is_here();
	who_needs_the_whole_file_asks_again_for_its_end();
	puts("all passed");
	return 0;
}
