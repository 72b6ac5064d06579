/* Tests of the granules of absent files, of what the hydrator is handed, and of parked READs. */
#include "fake_cold.h"

#include "util.h"

enum { PARK_MS = 3000 };

static atomic_int answered, failed, late;

static void granules_are_wanted_once(void)
{
	struct spw_inode *inode = absent(10 * (uint64_t)G + 5);

	hand_out(0, 0);
	assert(read_at(inode, 2 * (uint64_t)G - 1, 2) == EINPROGRESS);
	assert(read_at(inode, 2 * (uint64_t)G, 1) == EINPROGRESS);
	hand_out(G, 2 * (uint64_t)G);
	assert(read_at(inode, G, 1) == EINPROGRESS); /* it is handed out already */
	hand_out(0, 0);
	assert(read_at(inode, 10 * (uint64_t)G, 64) == EINPROGRESS);
	hand_out(10 * (uint64_t)G, 5); /* cut at the end of the file */
	spw_inode_put(inode);
	hand_out(0, 0);
}

static void a_new_session_gets_all_that_is_not_present(void)
{
	struct spw_inode *inode = absent(4 * (uint64_t)G);

	for (uint64_t i = 0; i < 3; i++)
		assert(read_at(inode, i * G, 1) == EINPROGRESS);
	hand_out(0, 3 * (uint64_t)G);
	assert(present(inode, G, G) == 0);
	hand_out(0, 0);
	session++;
	hand_out(0, G);
	hand_out(2 * (uint64_t)G, G);
	hand_out(0, 0);
	spw_inode_put(inode);
}

static void files_take_turns(void)
{
	struct spw_inode *one = absent(100 * (uint64_t)G), *other;
	struct spw_wanted wanted;

	assert(spw_want_all(one) == EAGAIN);
	assert(spw_want_all(one) == EAGAIN);
	ns.row.ino = 0;
	other = get(++next_ino);
	assert(read_at(other, 50 * (uint64_t)G, 1) == EINPROGRESS);
	hand_out(0, 16 * (uint64_t)G);
	assert(spw_cold_next(session, 0, &wanted) == 0 && wanted.offset == 50 * (uint64_t)G);
	hand_out(16 * (uint64_t)G, 16 * (uint64_t)G);
	spw_inode_put(one);
	spw_inode_put(other);
	hand_out(0, 0);
}

static void present_is_believed_for_whole_granules_of_this_epoch(void)
{
	struct spw_inode *inode = absent(2 * (uint64_t)G + 5);

	hydrate(inode, 2 * (uint64_t)G, "abcde");
	assert(present(inode, 1, G) == EINVAL);
	assert(present(inode, 0, G - 1) == EINVAL);
	assert(present(inode, 0, 0) == EINVAL);
	assert(present(inode, 0, 3 * (uint64_t)G) == EINVAL);
	assert(present(inode, 3 * (uint64_t)G, G) == EINVAL);
	assert(present(inode, G, UINT64_MAX - 5) == EINVAL);
	assert(ask(SPW_CONTROL_PRESENT, inode, 2, 0, 2 * (uint64_t)G, 5) == ESTALE);
	assert(ask(SPW_CONTROL_PRESENT, inode, 4, 0, 2 * (uint64_t)G, 5) == ESTALE);
	assert(read_at(inode, 2 * (uint64_t)G, 5) == EINPROGRESS);
	assert(present(inode, 2 * (uint64_t)G, 5) == 0);
	expect(inode, 2 * (uint64_t)G, 64, "abcde", true);
	expect(inode, 2 * (uint64_t)G, 4, "abcd", false);
	expect(inode, 2 * (uint64_t)G + 4, 1, "e", true);
	spw_inode_put(inode);
}

/* The row says where the file ends. A data file that is missing or too short says nothing. */
static void the_end_of_an_absent_file_is_that_of_its_row(void)
{
	struct spw_inode *inode = absent(2 * (uint64_t)G);
	char name[48];

	expect(inode, 2 * (uint64_t)G, 8, "", true);
	expect(inode, 9 * (uint64_t)G, 8, "", true);
	hydrate(inode, 0, "abc");
	assert(present(inode, 0, G) == 0);
	snprintf(name, sizeof(name), "%02x/%llu.3", (unsigned int)(inode->ino % 256),
		 (unsigned long long)inode->ino);
	{
		int fd = openat(spw_files_dir_fd(), name, O_WRONLY);

		assert(fd >= 0 && ftruncate(fd, 3) == 0);
		close(fd);
	}
	expect(inode, 0, 3, "abc", false);
	assert(read_at(inode, 0, 4) == EINPROGRESS); /* not an end of the file */
	assert(ns.row.epoch == 4);
	hydrate(inode, 0, "abc");
	assert(present(inode, 0, G) == 0);
	expect(inode, 2, 1, "c", false);
	spw_inode_put(inode);
}

/* ---- parked READs ---- */

static void resume(struct spw_parked *parked, int rc)
{
	atomic_fetch_add(rc == 0 ? &answered : rc == EIO ? &failed : &late, 1);
	free(parked);
}

static int park(struct spw_inode *inode, uint64_t offset, uint64_t client)
{
	struct spw_parked *parked = calloc(1, sizeof(*parked));
	int rc;

	parked->inode = inode;
	parked->offset = offset;
	parked->length = 1;
	parked->client = client;
	parked->resume = resume;
	rc = spw_cold_park(parked);
	if (rc != 0)
		free(parked);
	return rc;
}

static void await(atomic_int *count, int wanted)
{
	for (int i = 0; i < 5000 && atomic_load(count) < wanted; i++)
		usleep(1000);
	assert(atomic_load(count) == wanted);
}

static void none_answered(void)
{
	atomic_store(&answered, 0);
	atomic_store(&failed, 0);
	atomic_store(&late, 0);
}

static void parked_reads_are_bounded(void)
{
	struct spw_inode *inode = absent(G);
	int parked = 0;

	none_answered();
	assert(read_at(inode, 0, 1) == EINPROGRESS);
	for (uint64_t client = 1; client <= 20; client++)
		for (int i = 0; i < 30; i++)
			if (park(inode, 0, client) == 0)
				parked++;
			else
				assert(i >= 24 || parked == 256);
	assert(parked == 256);
	assert(present(inode, 0, G) == 0);
	await(&answered, 256);
	assert(park(inode, 0, 1) == EALREADY);
	spw_inode_put(inode);
}

static void one_client_does_not_take_all_places(void)
{
	struct spw_inode *inode = absent(G);

	none_answered();
	assert(read_at(inode, 0, 1) == EINPROGRESS);
	for (int i = 0; i < 24; i++)
		assert(park(inode, 0, 1) == 0);
	assert(park(inode, 0, 1) == EAGAIN && park(inode, 0, 2) == 0);
	await(&late, 25); /* after PARK_MS */
	assert(atomic_load(&answered) == 0);
	assert(park(inode, 0, 1) == 0); /* they gave their places back */
	await(&late, 26);
	spw_inode_put(inode);
}

static void only_reads_whose_bytes_are_here_go_on(void)
{
	struct spw_inode *inode = absent(2 * (uint64_t)G);

	none_answered();
	assert(spw_want_all(inode) == EAGAIN);
	assert(park(inode, 0, 1) == 0 && park(inode, G, 1) == 0);
	assert(present(inode, G, G) == 0);
	await(&answered, 1);
	assert(present(inode, 0, G) == 0);
	await(&answered, 2);
	spw_inode_put(inode);
}

static void what_cannot_be_had_fails_for_a_while(void)
{
	struct spw_inode *inode = absent(2 * (uint64_t)G);

	none_answered();
	hydrate(inode, 0, "abc");
	assert(present(inode, 0, G) == 0);
	assert(read_at(inode, G, 1) == EINPROGRESS);
	hand_out(G, G);
	assert(park(inode, G, 1) == 0);
	assert(ask(SPW_CONTROL_FAILED, inode, 2, EIO, 0, 0) == ESTALE);
	assert(ask(SPW_CONTROL_FAILED, inode, 3, EIO, 0, 0) == 0);
	await(&failed, 1);
	assert(read_at(inode, G, 1) == EIO && spw_want_all(inode) == EIO);
	expect(inode, 0, 3, "abc", false);
	hand_out(0, 0);
	usleep((SPW_COLD_RETRY_MS + 50) * 1000);
	assert(read_at(inode, G, 1) == EINPROGRESS);
	hand_out(G, G);
	spw_inode_put(inode);
}

static void what_the_disk_may_not_have_is_wanted_again(void)
{
	struct spw_inode *inode = absent(2 * (uint64_t)G);

	none_answered();
	hydrate(inode, 0, "abc");
	assert(present(inode, 0, G) == 0 && read_at(inode, G, 1) == EINPROGRESS);
	assert(ask(SPW_CONTROL_FAILED, inode, 2, EIO, 0, SPW_CONTROL_ALL_BYTES) == ESTALE);
	assert(read_at(inode, 0, 3) == 0 && park(inode, G, 1) == 0);
	assert(ask(SPW_CONTROL_FAILED, inode, 3, EIO, 0, SPW_CONTROL_ALL_BYTES) == 0);
	await(&failed, 1);
	assert(read_at(inode, 0, 3) == EIO);
	usleep((SPW_COLD_RETRY_MS + 50) * 1000);
	assert(read_at(inode, 0, 3) == EINPROGRESS);
	hand_out(0, G);
	spw_inode_put(inode);
}

static void arrived_reads_go_on(void)
{
	struct spw_inode *inode = absent(4);
	struct stat st;

	none_answered();
	assert(read_at(inode, 0, 1) == EINPROGRESS && park(inode, 0, 1) == 0);
	hand_out(0, 4);
	hydrate(inode, 0, "abcd");
	assert(arrived(inode, 2, VERSION) == ESTALE);
	assert(arrived(inode, 3, VERSION + 1) == ESTALE);
	assert(atomic_load(&answered) == 0 && read_at(inode, 0, 1) == EINPROGRESS);
	assert(arrived(inode, 3, VERSION) == 0);
	await(&answered, 1);
	expect(inode, 0, 8, "abcd", true);
	assert(ask(SPW_CONTROL_PRESENT, inode, 3, 0, 0, 4) == ESTALE);
	assert(!data_file(inode->ino, &st));
	hand_out(0, 0);
	assert(put(inode, "x", 4, true) == 0);
	settle();
	expect(inode, 0, 8, "abcdx", true);
	spw_inode_put(inode);
}

/* ---- the end ---- */

static void *wait_for_wanted(void *result)
{
	struct spw_wanted wanted;

	/* A peek waits too, for a moment. */
	do
		*(int *)result = spw_cold_next(session, 10000, &wanted);
	while (*(int *)result == EBUSY);
	return NULL;
}

static int peek(uint32_t wait_ms)
{
	struct spw_wanted wanted;

	return spw_cold_next(session, wait_ms, &wanted);
}

static void the_end_answers_all_and_waits_for_nothing(void)
{
	struct spw_inode *inode = absent(G);
	uint64_t began = spw_clock_ms();
	pthread_t waiter;
	int result = -1, rc;

	none_answered();
	assert(pthread_create(&waiter, NULL, wait_for_wanted, &result) == 0);
	while ((rc = peek(0)) == 0)
		usleep(1000);
	assert(rc == EBUSY); /* one waits at a time */
	spw_cold_close();
	pthread_join(waiter, NULL);
	assert(result == 0 && peek(10000) == 0);
	assert(spw_clock_ms() - began < 5000);
	spw_cold_open();
	assert(read_at(inode, 0, 1) == EINPROGRESS && park(inode, 0, 1) == 0);
	began = spw_clock_ms();
	spw_cold_close();
	assert(atomic_load(&late) == 1 && spw_clock_ms() - began < PARK_MS / 2);
	assert(park(inode, 0, 1) == EAGAIN);
	spw_cold_open();
	spw_inode_put(inode);
}

static void only_root_asks(void)
{
	struct spw_control_request asked = { .request = { .ino = 5, .uid = 7 } };
	struct spw_control_reply reply = { 0 };

	for (uint32_t op = SPW_CONTROL_EVICT; op <= SPW_CONTROL_FAILED; op++)
		assert(spw_cold_serve(op, &asked, &reply) == EPERM);
	assert(spw_cold_serve(SPW_CONTROL_LOST, &asked, &reply) == EPERM);
	assert(spw_cold_serve(SPW_CONTROL_FAILED + 1, &asked, &reply) == ENOTSUP);
	asked.request = (struct spw_request){ .ino = session, .ino2 = 50 };
	assert(spw_cold_serve(SPW_CONTROL_WANTED, &asked, &reply) == 0 && reply.attr.ino == 0);
}

int main(int argc, char **argv)
{
	assert(argc == 2);
	fake_namespace_start(argv[1]);
	assert(spw_cold_start(PARK_MS) == 0);
	granules_are_wanted_once();
	a_new_session_gets_all_that_is_not_present();
	files_take_turns();
	present_is_believed_for_whole_granules_of_this_epoch();
	the_end_of_an_absent_file_is_that_of_its_row();
	parked_reads_are_bounded();
	one_client_does_not_take_all_places();
	only_reads_whose_bytes_are_here_go_on();
	what_cannot_be_had_fails_for_a_while();
	what_the_disk_may_not_have_is_wanted_again();
	arrived_reads_go_on();
	the_end_answers_all_and_waits_for_nothing();
	only_root_asks();
	puts("all passed");
	return 0;
}
