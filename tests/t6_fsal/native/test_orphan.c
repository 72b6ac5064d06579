/* Tests of orphans, which are inodes without a name, without Ganesha and without Python. */
#include "fake_namespace.h"

static void orphans_are_reclaimed_with_the_last_handle(void)
{
	struct spw_inode *inode = fresh(), *again = get(next_ino);
	struct spw_removed removed = { .ino = next_ino, .kind = SPW_REGULAR, .nlink = 0 };

	assert(again == inode);
	assert(spw_writer_begin(inode, NULL) == 0);
	assert(put(inode, "abc", 0, false) == 0);
	assert(!spw_is_nameless(inode));
	spw_removed(&removed);
	assert(spw_is_nameless(inode));
	expect(inode, 0, 10, "abc", true);
	end(inode);
	assert(ns.seals == 0); /* a nameless file is never drained */
	spw_inode_put(inode);
	settle();
	assert(ns.reclaims == 0 && has_bytes(next_ino));
	spw_inode_put(again);
	settle();
	assert(ns.reclaims == 1 && !has_bytes(next_ino));
	/* An orphan that nothing has open is reclaimed at once. An inode with a name left is not. */
	removed.ino = ++next_ino;
	spw_removed(&removed);
	settle();
	assert(ns.reclaims == 2);
	removed.nlink = 1;
	spw_removed(&removed);
	settle();
	assert(ns.reclaims == 2);
}

static void bytes_stay_while_their_row_does(void)
{
	struct spw_inode *inode = fresh();
	uint64_t ino = next_ino;
	struct spw_removed removed = { .ino = ino, .kind = SPW_REGULAR, .nlink = 0 };

	assert(put(inode, "abc", 0, false) == 0);
	settle();
	spw_inode_put(inode);
	ns.reclaims = 0;
	ns.fail_reclaim = ENOENT; /* it is no orphan: another name was made for it */
	spw_removed(&removed);
	settle();
	assert(ns.reclaims == 1 && has_bytes(ino));
	ns.fail_reclaim = 0;
	spw_removed(&removed);
	settle();
	assert(ns.reclaims == 2 && !has_bytes(ino));
}

static int count_of(const int *count)
{
	int found;

	pthread_mutex_lock(&ns_lock);
	found = *count;
	pthread_mutex_unlock(&ns_lock);
	return found;
}

/* The database is away for a moment: the bytes must not stay until the next start. */
static void a_reclaim_that_failed_is_tried_again(void)
{
	struct spw_removed removed = { .kind = SPW_REGULAR, .nlink = 0 };
	struct spw_inode *inode;

	for (int i = 0; i < 2; i++) {
		inode = fresh();
		removed.ino = next_ino;
		assert(put(inode, "abc", 0, false) == 0);
		settle();
		ns_set(&ns.fail_reclaim, i == 0 ? EAGAIN : EIO);
		spw_removed(&removed);
		spw_inode_put(inode);
		assert(!spw_queue_flush(1));
		assert(count_of(&ns.reclaims) >= 1 && has_bytes(next_ino));
		ns_set(&ns.fail_reclaim, 0);
		settle();
		assert(!has_bytes(next_ino));
	}
}

static void an_orphan_that_cannot_be_reclaimed_holds_no_seal_up(void)
{
	struct spw_removed removed = { .ino = ++next_ino, .kind = SPW_REGULAR, .nlink = 0 };
	struct spw_inode *inode = fresh();

	ns_set(&ns.fail_reclaim, EAGAIN);
	spw_removed(&removed);
	assert(!spw_queue_flush(1));
	for (int i = 0; i < 3; i++) {
		assert(put(inode, "abc", 0, false) == 0);
		for (int waited = 0; count_of(&ns.seals) <= i && waited < 30000; waited++)
			usleep(1000);
	}
	assert(count_of(&ns.seals) == 3);
	ns_set(&ns.fail_reclaim, 0);
	settle();
	spw_inode_put(inode);
}

/* Another client removes the name of a new file before its maker has a handle. */
static void a_name_that_goes_before_its_maker_has_a_handle_leaves_no_bytes(void)
{
	struct spw_removed removed = { .kind = SPW_REGULAR, .nlink = 0 };
	struct spw_attr created, answer;
	struct spw_inode *inode;
	uint64_t asked;

	spw_inode_put(fresh());
	asked = spw_asked();
	created = answer = row_of(++next_ino);
	removed.ino = next_ino;
	removed.change = ++ns.row.change;
	spw_removed(&removed);
	ns.row.nlink = 0;
	inode = spw_inode_get(&answer, asked);
	assert(spw_is_nameless(inode));
	assert(spw_writer_begin(inode, &created) == 0); /* its row was still there */
	settle();
	assert(ns.reclaims == 1);
	assert(put(inode, "abc", 0, false) == 0);
	expect(inode, 0, 3, "abc", true);
	end(inode);
	spw_inode_put(inode);
	settle();
	assert(ns.seals == 0 && !has_bytes(next_ino));
}

int main(int argc, char **argv)
{
	assert(argc == 2);
	fake_namespace_start(argv[1]);
	orphans_are_reclaimed_with_the_last_handle();
	bytes_stay_while_their_row_does();
	a_reclaim_that_failed_is_tried_again();
	an_orphan_that_cannot_be_reclaimed_holds_no_seal_up();
	a_name_that_goes_before_its_maker_has_a_handle_leaves_no_bytes();
	puts("all passed");
	return 0;
}
