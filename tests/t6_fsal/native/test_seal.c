/* Tests of writers and seals, without Ganesha and without Python. */
#include "fake_namespace.h"

#include <sys/resource.h>

#include "util.h"
#include "bytes.h"

static void the_first_writer_opens_and_the_last_one_seals(void)
{
	struct spw_inode *inode = fresh();

	assert(spw_writer_begin(inode, NULL) == 0);
	assert(spw_writer_begin(inode, NULL) == 0);
	assert(ns.opens == 1);
	assert(put(inode, "abc", 0, false) == 0);
	assert(put(inode, "def", 3, false) == 0);
	end(inode);
	assert(ns.seals == 0);
	end(inode);
	assert(ns.seals == 1 && ns.last.size == 6 && ns.last.writes == 2);
	/* A write without an open is a session of its own. */
	assert(put(inode, "g", 6, false) == 0);
	settle();
	assert(ns.opens == 2 && ns.seals == 2 && ns.last.size == 7 && ns.last.writes == 1);
	spw_inode_put(inode);
}

static void a_refused_open_writes_nothing(void)
{
	struct spw_inode *inode = fresh();

	ns.fail_open = EAGAIN;
	assert(put(inode, "abc", 0, false) == EAGAIN);
	ns.fail_open = 0;
	expect(inode, 0, 10, "", true);
	spw_inode_put(inode);
}

static void the_seal_comes_after_the_sync(void)
{
	struct spw_inode *inode = fresh();
	int before;

	assert(spw_writer_begin(inode, NULL) == 0);
	assert(put(inode, "abc", 0, false) == 0);
	before = atomic_load(&fdatasyncs);
	end(inode);
	assert(atomic_load(&fdatasyncs) == before + 1 && ns.seals == 1);
	/* Bytes that are on the disk already are not synced again. */
	assert(spw_writer_begin(inode, NULL) == 0);
	assert(put(inode, "abc", 0, true) == 0);
	before = atomic_load(&fdatasyncs);
	assert(spw_commit(inode) == 0);
	end(inode);
	assert(atomic_load(&fdatasyncs) == before);
	spw_inode_put(inode);
}

static void wait_for(const int *count, int wanted)
{
	int found = 0;

	for (int waited = 0; found < wanted && waited < 60000; waited++) {
		usleep(1000);
		pthread_mutex_lock(&ns_lock);
		found = *count;
		pthread_mutex_unlock(&ns_lock);
	}
	assert(found == wanted);
}

/* A client died with a lot of bytes in memory, and the disk is slow. */
static void nothing_waits_for_the_bytes_of_another_file(void)
{
	struct spw_removed removed = { .kind = SPW_REGULAR, .nlink = 0 };
	struct spw_inode *slow = fresh(), *quick;
	struct spw_attr attr;

	assert(spw_writer_begin(slow, NULL) == 0);
	assert(put(slow, "abc", 0, false) == 0);
	atomic_store(&fdatasync_held, true);
	spw_writer_end(slow);
	quick = get(++next_ino);
	for (int i = 0; i < 3; i++) {
		assert(spw_writer_begin(quick, NULL) == 0);
		spw_writer_end(quick);
		wait_for(&ns.seals, i + 1);
	}
	removed.ino = ++next_ino;
	spw_removed(&removed);
	wait_for(&ns.reclaims, 1);
	assert(ns.seals == 3 && spw_getattr(slow, &attr) == 0 && attr.size == 3);
	/* Nor does another writer of the same file wait for them. */
	assert(put(slow, "def", 3, false) == 0);
	atomic_store(&fdatasync_held, false);
	settle();
	assert(ns.last.size == 6 && ns.row.size == 6);
	spw_inode_put(slow);
	spw_inode_put(quick);
}

static void a_failed_seal_is_tried_again_and_loses_no_size(void)
{
	struct spw_inode *inode = fresh();
	struct rlimit before, none;
	struct spw_attr attr;

	assert(spw_writer_begin(inode, NULL) == 0);
	assert(put(inode, "abcdef", 0, false) == 0);
	ns.fail_seal = EAGAIN;
	spw_writer_end(inode);
	assert(!spw_queue_flush(1));
	assert(spw_getattr(inode, &attr) == 0 && attr.size == 6);
	/* The descriptor was closed. Without another one nothing is told: the row has 0 bytes. */
	assert(getrlimit(RLIMIT_NOFILE, &before) == 0);
	none = (struct rlimit){ .rlim_cur = 0, .rlim_max = before.rlim_max };
	assert(setrlimit(RLIMIT_NOFILE, &none) == 0);
	assert(spw_getattr(inode, &attr) == EAGAIN);
	assert(setrlimit(RLIMIT_NOFILE, &before) == 0);
	spw_inode_put(inode);
	inode = get(next_ino);
	assert(spw_getattr(inode, &attr) == 0 && attr.size == 6);
	ns.fail_seal = 0;
	settle();
	assert(spw_getattr(inode, &attr) == 0 && attr.size == 6 && ns.seals == 1);
	spw_inode_put(inode);
}

static void a_writer_that_comes_before_the_seal_goes_on_with_the_version(void)
{
	struct spw_inode *inode = fresh();

	assert(spw_writer_begin(inode, NULL) == 0);
	assert(put(inode, "abc", 0, false) == 0);
	atomic_store(&fdatasync_held, true);
	spw_writer_end(inode); /* the sealer syncs now */
	assert(spw_writer_begin(inode, NULL) == 0);
	atomic_store(&fdatasync_held, false);
	settle();
	assert(ns.opens == 1 && ns.seals == 0);
	assert(put(inode, "def", 3, false) == 0);
	end(inode);
	assert(ns.opens == 1 && ns.seals == 1 && ns.last.writes == 2 && ns.last.size == 6);
	spw_inode_put(inode);
}

static int64_t mtime_of_data(uint64_t ino)
{
	struct stat st;

	assert(data_file(ino, &st));
	return spw_ns(&st.st_mtim);
}

static void a_seal_waits_for_an_mtime_that_is_being_set(void)
{
	struct spw_inode *inode = fresh();
	int before;

	assert(!spw_keep_open(inode)); /* nothing would be sealed */
	assert(spw_writer_begin(inode, NULL) == 0);
	assert(put(inode, "abc", 0, false) == 0);
	assert(spw_keep_open(inode));
	end(inode);
	assert(ns.seals == 0);
	before = atomic_load(&fsyncs);
	assert(spw_touch(inode, -1) == 0); /* 1969 */
	assert(atomic_load(&fsyncs) == before + 1 && mtime_of_data(next_ino) == -1);
	end(inode);
	assert(ns.seals == 1 && ns.last.mtime_ns == -1);
	spw_inode_put(inode);
}

static void a_disk_error_while_an_mtime_is_set_is_final(void)
{
	struct spw_inode *inode = fresh();
	uint32_t before = spw_lost_count();

	assert(spw_writer_begin(inode, NULL) == 0);
	assert(put(inode, "abc", 0, false) == 0);
	atomic_store(&fdatasync_error, EIO); /* the kernel reports it once */
	assert(spw_touch(inode, 5) == EIO);
	atomic_store(&fdatasync_error, 0);
	assert(spw_commit(inode) == EIO && spw_lost_count() == before + 1);
	assert(spw_truncate(inode, 0) == 0); /* no lost byte is left */
	end(inode);
	spw_inode_put(inode);
}

static void the_data_file_has_the_mtime_of_the_row_when_a_writer_comes(void)
{
	struct spw_inode *inode = fresh();
	struct spw_attr attr;
	int before;

	assert(put(inode, "abc", 0, false) == 0);
	settle();
	before = atomic_load(&fsyncs);
	attr = row_of(next_ino);
	attr.mtime_ns = ns.row.mtime_ns = 1600000000987654321;
	attr.change = ++ns.row.change;
	spw_changed(&attr);
	assert(spw_touch(inode, attr.mtime_ns) == 0); /* without a writer the row has the mtime */
	assert(mtime_of_data(next_ino) != attr.mtime_ns && atomic_load(&fsyncs) == before);
	/* After a crash from here on, only the data file has the mtime. */
	assert(spw_writer_begin(inode, NULL) == 0);
	assert(mtime_of_data(next_ino) == attr.mtime_ns && atomic_load(&fsyncs) == before + 1);
	end(inode);
	assert(spw_writer_begin(inode, NULL) == 0);
	assert(atomic_load(&fsyncs) == before + 1);
	end(inode);
	spw_inode_put(inode);
}

static void files_that_close_together_are_sealed_together(void)
{
	struct spw_inode *inode = fresh(), *others[8];

	for (unsigned int i = 0; i < 8; i++) {
		others[i] = get(++next_ino);
		assert(spw_writer_begin(others[i], NULL) == 0);
	}
	assert(put(inode, "abc", 0, false) == 0);
	settle();
	ns.batches = ns.seals = 0;
	assert(spw_writer_begin(inode, NULL) == 0);
	assert(put(inode, "abc", 0, true) == 0);
	atomic_store(&seal_held, true); /* the first transaction does not end before all have closed */
	spw_writer_end(inode);
	for (unsigned int i = 0; i < 8; i++)
		spw_writer_end(others[i]);
	atomic_store(&seal_held, false);
	settle();
	assert(ns.seals == 9 && ns.batches <= 2);
	for (unsigned int i = 0; i < 8; i++)
		spw_inode_put(others[i]);
	spw_inode_put(inode);
}

static void a_creation_that_others_overtook_is_a_version_of_its_own(void)
{
	struct spw_attr created;
	struct spw_inode *inode;
	uint64_t asked = spw_asked();

	spw_inode_put(fresh());
	created = row_of(++next_ino); /* the CREATE is answered, its thread waits */
	inode = get(next_ino);
	assert(put(inode, "theirs", 0, false) == 0);
	settle();
	assert(ns.opens == 1 && ns.seals == 1);
	spw_inode_put(spw_inode_get(&(struct spw_attr){ .ino = next_ino, .change = created.change },
				    asked));
	assert(spw_writer_begin(inode, &created) == 0);
	assert(ns.opens == 2); /* a new version: the sealed one may be in the bucket */
	end(inode);
	spw_inode_put(inode);
	/* The same holds if no object that saw the other writer is left. */
	ns.row.size = 0;
	asked = spw_asked();
	created = row_of(++next_ino);
	inode = get(next_ino);
	assert(put(inode, "theirs", 0, false) == 0);
	settle();
	spw_inode_put(inode);
	inode = spw_inode_get(&(struct spw_attr){ .ino = next_ino, .change = created.change }, asked);
	ns.opens = 0;
	assert(spw_writer_begin(inode, &created) == 0);
	assert(ns.opens == 1);
	end(inode);
	spw_inode_put(inode);
}

static void a_creation_that_nobody_overtook_is_open_already(void)
{
	struct spw_attr created, answer;
	uint64_t asked;
	struct spw_inode *inode;

	spw_inode_put(fresh());
	asked = spw_asked();
	created = answer = row_of(++next_ino);
	inode = spw_inode_get(&answer, asked);
	assert(spw_writer_begin(inode, &created) == 0);
	assert(ns.opens == 0);
	assert(put(inode, "ours", 0, false) == 0);
	end(inode);
	assert(ns.seals == 1 && ns.last.size == 4);
	spw_inode_put(inode);
}

/* Wait until the namespace has seen this many seals. */
static void await_seals(int wanted)
{
	for (int seals = 0, waited = 0; seals < wanted; waited++) {
		assert(waited < 10000);
		usleep(1000);
		pthread_mutex_lock(&ns_lock);
		seals = ns.seals;
		pthread_mutex_unlock(&ns_lock);
	}
}

static void a_file_that_cannot_be_sealed_holds_no_other_up(void)
{
	struct spw_inode *inode = fresh(), *other;
	struct timespec began, ended;
	struct spw_attr attr;

	assert(put(inode, "abc", 0, false) == 0);
	settle();
	ns.seals = 0;
	ns.never_sealed = next_ino;
	assert(put(inode, "d", 3, false) == 0);
	clock_gettime(CLOCK_MONOTONIC, &began);
	for (int i = 1; i <= 16; i++) {
		ns.row.size = 0;
		other = get(next_ino + 1);
		assert(put(other, "x", 0, false) == 0);
		await_seals(i);
		spw_inode_put(other);
		next_ino++;
	}
	clock_gettime(CLOCK_MONOTONIC, &ended);
	assert(ended.tv_sec - began.tv_sec < 8); /* if each seal waited for the next try: 16 s */
	/* The unsealed file keeps no descriptor, and has the size that was written. */
	pthread_mutex_lock(&inode->meta);
	assert(inode->fd < 0 && inode->write_open);
	pthread_mutex_unlock(&inode->meta);
	assert(spw_getattr(inode, &attr) == 0 && attr.size == 4);
	ns.never_sealed = 0;
	settle();
	assert(ns.seals == 17 && ns.last.size == 4);
	spw_inode_put(inode);
}

enum { THREADS = 8, ROUNDS = 400 };

static void *session(void *argument)
{
	uint64_t ino = *(uint64_t *)argument;

	for (int i = 0; i < ROUNDS; i++) {
		struct spw_inode *inode = get(ino);
		struct spw_attr attr;

		assert(spw_writer_begin(inode, NULL) == 0);
		assert(put(inode, "0123456789", (uint64_t)i * 10, i % 50 == 0) == 0);
		if (i % 7 == 0)
			assert(spw_commit(inode) == 0);
		assert(spw_getattr(inode, &attr) == 0 && attr.size >= (uint64_t)(i + 1) * 10);
		spw_writer_end(inode);
		spw_inode_put(inode);
	}
	return NULL;
}

static void many_writers_at_once(void)
{
	struct spw_inode *inode = fresh();
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		assert(pthread_create(&threads[i], NULL, session, &inode->ino) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	settle();
	assert(ns.row.size == ROUNDS * 10);
	assert(ns.opens == ns.seals);
	/* Every write was counted in exactly one seal. */
	assert(ns.row.change == 1 + (uint64_t)ns.opens + (uint64_t)THREADS * ROUNDS);
	assert(inode->fd < 0 && inode->writers == 0);
	spw_inode_put(inode);
}

int main(int argc, char **argv)
{
	assert(argc == 2);
	fake_namespace_start(argv[1]);
	the_first_writer_opens_and_the_last_one_seals();
	a_refused_open_writes_nothing();
	the_seal_comes_after_the_sync();
	nothing_waits_for_the_bytes_of_another_file();
	a_failed_seal_is_tried_again_and_loses_no_size();
	a_writer_that_comes_before_the_seal_goes_on_with_the_version();
	a_seal_waits_for_an_mtime_that_is_being_set();
	a_disk_error_while_an_mtime_is_set_is_final();
	the_data_file_has_the_mtime_of_the_row_when_a_writer_comes();
	files_that_close_together_are_sealed_together();
	a_creation_that_others_overtook_is_a_version_of_its_own();
	a_creation_that_nobody_overtook_is_open_already();
	a_file_that_cannot_be_sealed_holds_no_other_up();
	many_writers_at_once();
	puts("all passed");
	return 0;
}
