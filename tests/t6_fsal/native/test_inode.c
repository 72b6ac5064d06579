/* Tests of bytes, stable storage and attributes, without Ganesha and without Python. */
#include "fake_namespace.h"

#include "bytes.h"

static void bytes_come_back_and_eof_is_exact(void)
{
	struct spw_inode *inode = fresh();

	expect(inode, 0, 10, "", true); /* never written: no data file */
	assert(spw_writer_begin(inode, NULL) == 0);
	assert(put(inode, "hello", 0, false) == 0);
	expect(inode, 0, 5, "hello", true);
	expect(inode, 0, 4, "hell", false);
	expect(inode, 3, 10, "lo", true);
	expect(inode, 5, 1, "", true);
	expect(inode, 9, 1, "", true);
	end(inode);
	expect(inode, 0, 10, "hello", true);
	spw_inode_put(inode);
}

static void a_failed_sync_stays_failed(void)
{
	struct spw_inode *inode = fresh();
	uint32_t lost = spw_lost_count();

	assert(spw_writer_begin(inode, NULL) == 0);
	assert(put(inode, "abc", 0, false) == 0);
	atomic_store(&fdatasync_error, EIO);
	assert(spw_commit(inode) == EIO);
	assert(spw_lost_count() == lost + 1); /* the write verifier changes */
	atomic_store(&fdatasync_error, 0);
	assert(spw_commit(inode) == EIO);
	assert(put(inode, "def", 0, true) == EIO);
	end(inode);
	assert(ns.seals == 0); /* a damaged file is never drained */
	/* The error also outlives the last handle. */
	spw_inode_put(inode);
	inode = get(next_ino);
	assert(spw_commit(inode) == EIO);
	/* After a truncation to 0, no lost byte is left. */
	assert(spw_truncate(inode, 0) == 0);
	assert(put(inode, "new", 0, true) == 0);
	settle();
	assert(ns.seals > 0 && ns.last.size == 3);
	spw_inode_put(inode);
}

static void *commit(void *inode)
{
	assert(spw_commit(inode) == 0);
	return NULL;
}

static void commits_that_wait_together_share_a_sync(void)
{
	struct spw_inode *inode = fresh();
	pthread_t threads[8];
	int before;

	assert(spw_writer_begin(inode, NULL) == 0);
	assert(put(inode, "abc", 0, false) == 0);
	before = atomic_load(&fdatasyncs);
	atomic_store(&fdatasync_held, true);
	for (int i = 0; i < 8; i++) {
		assert(put(inode, "x", (uint64_t)i, false) == 0);
		assert(pthread_create(&threads[i], NULL, commit, inode) == 0);
	}
	atomic_store(&fdatasync_held, false);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	/* The first sync covers the writes before its beginning, the second the rest. */
	assert(atomic_load(&fdatasyncs) <= before + 2);
	assert(atomic_load(&inode->synced) == atomic_load(&inode->writes));
	end(inode);
	spw_inode_put(inode);
}

static void what_the_namespace_answered_is_not_asked_again(void)
{
	struct spw_inode *inode = fresh();
	struct spw_removed removed = { .ino = next_ino, .kind = SPW_REGULAR, .nlink = 1 };
	struct spw_attr attr, old;

	assert(spw_getattr(inode, &attr) == 0 && attr.nlink == 1 && ns.getattrs == 0);
	old = attr;
	/* A change answers with the attributes after it. */
	attr.mode = 0600;
	attr.change++;
	spw_changed(&attr);
	assert(spw_getattr(inode, &attr) == 0 && attr.mode == 0600 && ns.getattrs == 0);
	/* An answer that the change overtook is not used. */
	spw_changed(&old);
	assert(spw_getattr(inode, &attr) == 0 && attr.mode == 0600);
	/* The answer to a removal has only the new change and link count of the inode. */
	ns.row.change = removed.change = attr.change + 1;
	ns.row.nlink = 7;
	spw_removed(&removed);
	assert(spw_getattr(inode, &attr) == 0 && attr.nlink == 7 && ns.getattrs == 1);
	spw_inode_invalidate(next_ino);
	assert(spw_getattr(inode, &attr) == 0 && ns.getattrs == 2);
	spw_inode_put(inode);
}

/* A look-up is answered, then another change, and then the handle of the look-up is made. */
static void an_answer_older_than_a_change_is_not_kept(void)
{
	struct spw_inode *inode = fresh();
	struct spw_removed removed = { .ino = next_ino, .kind = SPW_REGULAR, .nlink = 1 };
	uint64_t asked = spw_asked();
	struct spw_attr old = row_of(next_ino), attr;

	spw_inode_put(inode);
	/* There is no object that could remember the change. */
	ns.row.change = removed.change = 2;
	ns.row.nlink = 7;
	spw_removed(&removed);
	inode = spw_inode_get(&old, asked);
	assert(spw_getattr(inode, &attr) == 0 && attr.nlink == 7);
	spw_inode_put(inode);
	/* The same holds if an object existed and was freed. */
	asked = spw_asked();
	old = row_of(next_ino);
	inode = get(next_ino);
	ns.row.change = removed.change = 3;
	ns.row.nlink = 8;
	spw_removed(&removed);
	spw_inode_put(inode);
	inode = spw_inode_get(&old, asked);
	assert(spw_getattr(inode, &attr) == 0 && attr.nlink == 8);
	spw_inode_put(inode);
}

static void a_mode_that_is_not_known_may_be_privileged(void)
{
	struct spw_inode *inode = fresh();
	struct spw_attr attr;

	ns.row.mode = 0755;
	ns.row.change++;
	attr = row_of(inode->ino);
	spw_changed(&attr);
	assert(!spw_may_be_privileged(inode));
	spw_inode_invalidate(inode->ino);
	assert(spw_may_be_privileged(inode));
	ns.row.mode = 02755;
	assert(spw_getattr(inode, &attr) == 0 && spw_may_be_privileged(inode));
	spw_inode_put(inode);
}

static void attributes_come_from_the_data_file_while_it_is_written(void)
{
	struct spw_inode *inode = fresh();
	struct spw_attr attr, before;

	assert(spw_writer_begin(inode, NULL) == 0);
	assert(spw_getattr(inode, &before) == 0 && before.size == 0);
	assert(put(inode, "abc", 4093, false) == 0);
	assert(spw_getattr(inode, &attr) == 0);
	assert(attr.size == 4096 && attr.change > before.change);
	/* Attributes of a row that was read before are corrected. */
	attr = row_of(inode->ino);
	assert(attr.size == 0);
	spw_inode_put(spw_inode_get(&attr, spw_asked()));
	assert(spw_getattr(inode, &attr) == 0 && attr.size == 4096);
	spw_touch(inode, 1500000000LL * 1000000000LL + 7);
	assert(spw_getattr(inode, &attr) == 0);
	assert(attr.mtime_ns == 1500000000LL * 1000000000LL + 7);
	before = attr;
	end(inode);
	assert(spw_getattr(inode, &attr) == 0);
	assert(attr.size == before.size && attr.mtime_ns == before.mtime_ns);
	assert(attr.change >= before.change); /* never backwards */
	spw_inode_put(inode);
}

/* A name that was told lately is found here, without a question to the namespace. */
static void a_file_that_is_found_here_while_it_is_written_keeps_its_row(void)
{
	struct spw_inode *inode = fresh();
	struct spw_attr attr, before;

	assert(spw_writer_begin(inode, NULL) == 0);
	assert(put(inode, "abc", 0, false) == 0);
	assert(spw_getattr(inode, &before) == 0);
	for (unsigned int i = 0; i < 3; i++) {
		uint64_t asked = spw_asked();

		assert(spw_inode_known(inode->ino, &attr));
		spw_inode_put(spw_inode_get(&attr, asked));
		assert(spw_getattr(inode, &attr) == 0);
		assert(attr.size == 3 && attr.change == before.change);
	}
	assert(put(inode, "abc", 4093, false) == 0);
	end(inode);
	/* If each look-up had counted the write again, the answer to the seal would seem old. */
	assert(spw_getattr(inode, &attr) == 0);
	assert(attr.size == 4096 && attr.change == row_of(inode->ino).change);
	spw_inode_put(inode);
}

static void a_row_read_before_a_seal_is_not_believed(void)
{
	struct spw_inode *inode = fresh();
	struct spw_attr old, attr;

	assert(spw_writer_begin(inode, NULL) == 0);
	assert(put(inode, "abc", 0, false) == 0);
	old = row_of(inode->ino);
	end(inode);
	spw_inode_put(spw_inode_get(&old, spw_asked()));
	assert(spw_getattr(inode, &attr) == 0 && attr.size == 3);
	spw_inode_put(inode);
}

static void truncation_and_holes(void)
{
	struct spw_inode *inode = fresh();
	uint64_t found;

	assert(spw_truncate(inode, 1 << 20) == 0);
	settle();
	assert(ns.last.size == 1 << 20 && ns.last.used == 0);
	assert(spw_seek(inode, 0, SEEK_DATA, &found) == ENXIO);
	assert(put(inode, "x", 1 << 19, false) == 0);
	assert(spw_seek(inode, 0, SEEK_DATA, &found) == 0 && found > 0 && found <= 1 << 19);
	assert(spw_allocate(inode, 0, 1 << 20, false) == 0);
	assert(spw_seek(inode, 0, SEEK_DATA, &found) == ENXIO);
	settle();
	assert(ns.last.size == 1 << 20);
	assert(spw_truncate(inode, 3) == 0);
	settle();
	assert(ns.last.size == 3);
	spw_inode_put(inode);
}

static void no_descriptor_stays_open(void)
{
	struct spw_inode *inode = fresh();

	spw_fd_hold(inode);
	assert(put(inode, "abc", 0, false) == 0);
	assert(inode->fd >= 0); /* an open state keeps the descriptor */
	spw_fd_release(inode);
	settle();
	assert(inode->fd < 0 && inode->fd_users == 0);
	expect(inode, 0, 10, "abc", true);
	assert(inode->fd < 0);
	spw_inode_put(inode);
}

int main(int argc, char **argv)
{
	assert(argc == 2);
	fake_namespace_start(argv[1]);
	bytes_come_back_and_eof_is_exact();
	a_failed_sync_stays_failed();
	commits_that_wait_together_share_a_sync();
	what_the_namespace_answered_is_not_asked_again();
	an_answer_older_than_a_change_is_not_kept();
	a_mode_that_is_not_known_may_be_privileged();
	attributes_come_from_the_data_file_while_it_is_written();
	a_file_that_is_found_here_while_it_is_written_keeps_its_row();
	a_row_read_before_a_seal_is_not_believed();
	truncation_and_holes();
	no_descriptor_stays_open();
	puts("all passed");
	return 0;
}
