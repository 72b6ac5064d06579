/* Tests of bytes that are known to be lost, in this process or in the one before it. */
#include "fake_namespace.h"

static void a_failed_sync_is_noted_before_it_is_answered(void)
{
	struct spw_inode *inode = fresh();

	assert(spw_writer_begin(inode, NULL) == 0);
	assert(put(inode, "abc", 0, false) == 0);
	atomic_store(&fdatasync_error, EIO);
	assert(spw_commit(inode) == EIO);
	assert(ns.damages == 1 && ns.damaged == next_ino);
	atomic_store(&fdatasync_error, 0);
	end(inode);
	assert(ns.seals == 0 && ns.damages == 1);
	/* After it is emptied, the file is not damaged any more and may be sealed. */
	assert(spw_truncate(inode, 0) == 0);
	assert(ns.damaged == 0);
	settle();
	assert(ns.seals == 1);
	spw_inode_put(inode);
}

static void a_damage_that_could_not_be_noted_is_noted_later(void)
{
	struct spw_inode *inode = fresh();

	ns_set(&ns.fail_damage, EAGAIN);
	assert(spw_writer_begin(inode, NULL) == 0);
	assert(put(inode, "abc", 0, false) == 0);
	atomic_store(&fdatasync_error, EIO);
	assert(spw_commit(inode) == EIO);
	atomic_store(&fdatasync_error, 0);
	spw_writer_end(inode);
	assert(!spw_queue_flush(1));
	assert(ns.damages == 0 && ns.seals == 0);
	/* The file stays damaged as long as the namespace may have the note of its damage. */
	assert(spw_truncate(inode, 0) == EAGAIN);
	assert(put(inode, "abc", 0, true) == EIO);
	ns_set(&ns.fail_damage, 0);
	settle();
	assert(ns.damages >= 1 && ns.damaged == next_ino && ns.seals == 0);
	assert(spw_truncate(inode, 0) == 0 && ns.damaged == 0);
	settle();
	spw_inode_put(inode);
}

static int read_some(struct spw_inode *inode)
{
	char buffer[8];
	struct iovec iov = { .iov_base = buffer, .iov_len = sizeof(buffer) };
	size_t amount;
	bool eof;

	return spw_read(inode, &iov, 1, 0, &amount, &eof);
}

static void a_file_that_was_damaged_before_the_start_stays_so(void)
{
	struct spw_inode *inode;

	spw_inode_put(fresh());
	ns.row.size = 3;
	for (uint64_t ino = DAMAGED_FIRST; ino < DAMAGED_FIRST + DAMAGED_COUNT; ino++) {
		inode = get(ino);
		assert(read_some(inode) == EIO && put(inode, "x", 0, false) == EIO);
		spw_inode_put(inode);
	}
	inode = get(DAMAGED_FIRST + 7);
	assert(spw_writer_begin(inode, NULL) == 0);
	end(inode);
	assert(ns.seals == 0); /* an open and a close do not mend the file */
	assert(spw_truncate(inode, 0) == 0);
	assert(put(inode, "new", 0, true) == 0);
	settle();
	expect(inode, 0, 8, "new", true);
	assert(ns.seals >= 1 && ns.last.size == 3);
	spw_inode_put(inode);
	inode = get(DAMAGED_FIRST + 7);
	expect(inode, 0, 8, "new", true);
	spw_inode_put(inode);
	inode = get(DAMAGED_FIRST + 8);
	assert(read_some(inode) == EIO);
	spw_inode_put(inode);
}

static void *touch(void *inode)
{
	assert(spw_touch(inode, 5) == EIO);
	return NULL;
}

static void a_commit_beside_a_failed_sync_of_times_is_refused(void)
{
	struct spw_inode *inode = fresh();
	pthread_t thread;

	assert(spw_writer_begin(inode, NULL) == 0);
	assert(put(inode, "abc", 0, false) == 0);
	atomic_store(&damage_began, false);
	atomic_store(&damage_held, true); /* the database is slow */
	atomic_store(&fdatasync_error, EIO);
	assert(pthread_create(&thread, NULL, touch, inode) == 0);
	while (!atomic_load(&damage_began))
		usleep(1000);
	atomic_store(&fdatasync_error, 0); /* the kernel reports it once */
	assert(spw_commit(inode) == EIO);
	atomic_store(&damage_held, false);
	pthread_join(thread, NULL);
	end(inode);
	assert(ns.seals == 0 && ns.damaged == next_ino);
	assert(spw_truncate(inode, 0) == 0);
	settle();
	spw_inode_put(inode);
}

/* Return a closed file whose mtime a client has set. The next writer must give this mtime to the
 * data file and sync it. */
static struct spw_inode *with_an_mtime_to_carry(void)
{
	struct spw_inode *inode = fresh();

	assert(put(inode, "abc", 0, false) == 0);
	settle();
	spw_inode_put(inode);
	ns.row.mtime_ns = 1600000000987654321;
	ns.row.change++;
	ns.seals = 0;
	return get(next_ino);
}

static void a_damage_found_without_a_writer_outlives_the_last_handle(void)
{
	struct spw_inode *inode;

	for (int is_told = 0; is_told < 2; is_told++) {
		inode = with_an_mtime_to_carry();
		ns.fail_damage = is_told ? 0 : EAGAIN;
		atomic_store(&fdatasync_error, EIO);
		assert(spw_writer_begin(inode, NULL) == EIO);
		atomic_store(&fdatasync_error, 0);
		spw_inode_put(inode);
		inode = get(next_ino);
		assert(read_some(inode) == EIO && put(inode, "x", 0, false) == EIO);
		ns.fail_damage = 0;
		assert(spw_writer_begin(inode, NULL) == 0);
		end(inode);
		assert(ns.seals == 0 && ns.damaged == next_ino && ns.damages == 1);
		assert(spw_truncate(inode, 0) == 0);
		settle();
		spw_inode_put(inode);
		inode = get(next_ino);
		assert(put(inode, "new", 0, true) == 0);
		expect(inode, 0, 8, "new", true);
		settle();
		spw_inode_put(inode);
	}
}

int main(int argc, char **argv)
{
	assert(argc == 2);
	fake_namespace_start(argv[1]);
	a_failed_sync_is_noted_before_it_is_answered();
	a_damage_that_could_not_be_noted_is_noted_later();
	a_file_that_was_damaged_before_the_start_stays_so();
	a_commit_beside_a_failed_sync_of_times_is_refused();
	a_damage_found_without_a_writer_outlives_the_last_handle();
	puts("all passed");
	return 0;
}
