/* Tests of the notes of reads: few, bounded, and never twice for an inode. */
#include "fake_namespace.h"

#include "bytes.h"

static void a_read_is_noted_once_a_minute(void)
{
	struct spw_inode *inode = fresh();

	assert(put(inode, "abc", 0, false) == 0);
	spw_reads_flush();
	ns.noted = ns.note_calls = 0;
	expect(inode, 0, 8, "abc", true);
	for (int i = 0; i < 2000; i++) /* more than one batch */
		expect(inode, 0, 8, "abc", true);
	spw_reads_flush();
	assert(ns.noted == 1 || ns.noted == 2); /* a minute may have passed */
	spw_reads_flush();
	assert(ns.note_calls == 1);
	settle();
	spw_inode_put(inode);
}

static void an_object_that_was_made_again_is_noted_once(void)
{
	struct spw_inode *inode = fresh();

	ns.noted = 0;
	for (int i = 0; i < 3; i++) {
		spw_inode_put(inode);
		inode = get(next_ino);
		spw_reads_note(inode);
	}
	spw_reads_flush();
	assert(ns.noted == 1);
	spw_inode_put(inode);
}

static void notes_are_sent_in_batches_and_bounded(void)
{
	struct spw_inode *inode = fresh();

	ns.noted = ns.note_calls = 0;
	for (int i = 0; i < 20000; i++) {
		struct spw_inode *other = get(++next_ino);

		spw_reads_note(other);
		spw_inode_put(other);
	}
	spw_reads_flush();
	assert(ns.noted == 8192 && ns.note_calls == 16);
	spw_inode_put(inode);
}

int main(int argc, char **argv)
{
	assert(argc == 2);
	fake_namespace_start(argv[1]);
	a_read_is_noted_once_a_minute();
	an_object_that_was_made_again_is_noted_once();
	notes_are_sent_in_batches_and_bounded();
	puts("all passed");
	return 0;
}
