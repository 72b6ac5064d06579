/* Tests of files.c, inode.c and seal.c without Ganesha and without Python, run under sanitizers.
 *
 * The namespace is a row per inode in this program. fdatasync goes through a wrapper that can be
 * told to fail, as a disk does.
 */
#define _GNU_SOURCE /* SEEK_DATA */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files.h"

#undef NDEBUG

static struct {
	int opens, seals, batches, getattrs, reclaims, fail_open, fail_seal;
	struct spw_attr row;
	struct spw_sealed last;
} ns;

static pthread_mutex_t ns_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int fdatasync_error;
static atomic_int fdatasyncs;
static atomic_bool fdatasync_held;

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

int __wrap_fdatasync(int fd)
{
	int waited = 0;

	atomic_fetch_add(&fdatasyncs, 1);
	while (atomic_load(&fdatasync_held) && waited++ < 5000)
		usleep(1000);
	if (atomic_load(&fdatasync_error) != 0) {
		errno = atomic_load(&fdatasync_error);
		return -1;
	}
	return __real_fdatasync(fd);
}

static int ns_open_write(uint64_t ino, struct spw_attr *attr)
{
	int rc = ns.fail_open;

	pthread_mutex_lock(&ns_lock);
	if (rc == 0) {
		ns.opens++;
		ns.row.ino = ino;
		ns.row.change++;
		*attr = ns.row;
	}
	pthread_mutex_unlock(&ns_lock);
	return rc;
}

static void ns_seal(struct spw_seal *seals, uint32_t count)
{
	pthread_mutex_lock(&ns_lock);
	ns.batches++;
	for (uint32_t i = 0; i < count; i++) {
		const struct spw_sealed *data = &seals[i].data;

		assert(seals[i].status == EIO); /* what nobody answers failed */
		seals[i].status = ns.fail_seal;
		if (ns.fail_seal != 0)
			continue;
		ns.seals++;
		ns.last = *data;
		if (data->writes > 0) {
			ns.row.size = data->size;
			ns.row.mtime_ns = data->mtime_ns;
			ns.row.change += data->writes;
		}
		seals[i].attr = ns.row;
		seals[i].attr.ino = seals[i].ino;
	}
	pthread_mutex_unlock(&ns_lock);
}

static int ns_getattr(uint64_t ino, struct spw_attr *attr)
{
	pthread_mutex_lock(&ns_lock);
	ns.getattrs++;
	*attr = ns.row;
	attr->ino = ino;
	pthread_mutex_unlock(&ns_lock);
	return 0;
}

static void ns_reclaim(uint64_t ino, uint64_t epoch)
{
	(void)ino;
	assert(epoch == 0);
	pthread_mutex_lock(&ns_lock);
	ns.reclaims++;
	pthread_mutex_unlock(&ns_lock);
}

static uint64_t next_ino = 100;

/* What a look-up answers now. */
static struct spw_attr row_of(uint64_t ino)
{
	struct spw_attr attr;

	pthread_mutex_lock(&ns_lock);
	attr = ns.row;
	pthread_mutex_unlock(&ns_lock);
	attr.ino = ino;
	return attr;
}

static struct spw_inode *get(uint64_t ino)
{
	uint64_t asked = spw_asked();
	struct spw_attr attr = row_of(ino);

	return spw_inode_get(&attr, asked);
}

/* Waits until what has no writer is sealed. */
static void settle(void)
{
	assert(spw_sealer_flush(30));
}

/* A writer goes, and the seal that follows is waited for. */
static void end(struct spw_inode *inode)
{
	spw_writer_end(inode);
	settle();
}

/* A fresh inode with a fresh row. */
static struct spw_inode *fresh(void)
{
	settle();
	memset(&ns, 0, sizeof(ns));
	ns.row.kind = SPW_REGULAR;
	ns.row.nlink = 1;
	ns.row.change = 1;
	atomic_store(&fdatasync_error, 0);
	return get(++next_ino);
}

static int put(struct spw_inode *inode, const char *text, uint64_t offset, bool stable)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text) };
	size_t amount;
	int rc = spw_write(inode, &iov, 1, offset, stable, &amount);

	assert(rc != 0 || amount == strlen(text));
	return rc;
}

static void expect(struct spw_inode *inode, uint64_t offset, size_t wanted, const char *text,
		   bool at_end)
{
	char buffer[64];
	struct iovec iov = { .iov_base = buffer, .iov_len = wanted };
	size_t amount;
	bool eof;

	assert(spw_read(inode, &iov, 1, offset, &amount, &eof) == 0);
	assert(amount == strlen(text) && memcmp(buffer, text, amount) == 0);
	assert(eof == at_end);
}

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
	/* What is on disk already is not synced again. */
	assert(spw_writer_begin(inode, NULL) == 0);
	assert(put(inode, "abc", 0, true) == 0);
	before = atomic_load(&fdatasyncs);
	assert(spw_commit(inode) == 0);
	end(inode);
	assert(atomic_load(&fdatasyncs) == before);
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
	assert(ns.seals == 0); /* never drained as if it were whole */
	/* Nor after everybody let go of it. */
	spw_inode_put(inode);
	inode = get(next_ino);
	assert(spw_commit(inode) == EIO);
	/* Truncated to nothing, none of the lost bytes is left. */
	assert(spw_truncate(inode, 0) == 0);
	assert(put(inode, "new", 0, true) == 0);
	settle();
	assert(ns.seals > 0 && ns.last.size == 3);
	spw_inode_put(inode);
}

static void a_failed_seal_is_tried_again_and_loses_no_size(void)
{
	struct spw_inode *inode = fresh();
	struct spw_attr attr;

	assert(spw_writer_begin(inode, NULL) == 0);
	assert(put(inode, "abcdef", 0, false) == 0);
	ns.fail_seal = EAGAIN;
	spw_writer_end(inode);
	assert(!spw_sealer_flush(1));
	assert(spw_getattr(inode, &attr) == 0 && attr.size == 6);
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
	assert(put(inode, "abc", 0, false) == 0);
	atomic_store(&fdatasync_held, true);
	spw_writer_end(inode);
	for (unsigned int i = 0; i < 8; i++)
		spw_writer_end(others[i]);
	atomic_store(&fdatasync_held, false);
	settle();
	assert(ns.seals == 9 && ns.batches <= 2);
	for (unsigned int i = 0; i < 8; i++)
		spw_inode_put(others[i]);
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
	/* The first covers what was written before it began, the second the rest. */
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
	/* A change answers with what it left. */
	attr.mode = 0600;
	attr.change++;
	spw_changed(&attr);
	assert(spw_getattr(inode, &attr) == 0 && attr.mode == 0600 && ns.getattrs == 0);
	/* An answer that was overtaken by it is not believed. */
	spw_changed(&old);
	assert(spw_getattr(inode, &attr) == 0 && attr.mode == 0600);
	/* A name that went changed the inode, but says only by how much. */
	ns.row.change = removed.change = attr.change + 1;
	ns.row.nlink = 7;
	spw_removed(&removed);
	assert(spw_getattr(inode, &attr) == 0 && attr.nlink == 7 && ns.getattrs == 1);
	spw_doubted(next_ino);
	assert(spw_getattr(inode, &attr) == 0 && ns.getattrs == 2);
	spw_inode_put(inode);
}

/* A look-up is answered, then somebody else's change, then the look-up's handle is made. */
static void an_answer_older_than_a_change_is_not_kept(void)
{
	struct spw_inode *inode = fresh();
	struct spw_removed removed = { .ino = next_ino, .kind = SPW_REGULAR, .nlink = 1 };
	uint64_t asked = spw_asked();
	struct spw_attr old = row_of(next_ino), attr;

	spw_inode_put(inode);
	/* No object is there to remember the change. */
	ns.row.change = removed.change = 2;
	ns.row.nlink = 7;
	spw_removed(&removed);
	inode = spw_inode_get(&old, asked);
	assert(spw_getattr(inode, &attr) == 0 && attr.nlink == 7);
	spw_inode_put(inode);
	/* Nor one that was there and went. */
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

static void attributes_come_from_the_data_file_while_it_is_written(void)
{
	struct spw_inode *inode = fresh();
	struct spw_attr attr, before;

	assert(spw_writer_begin(inode, NULL) == 0);
	assert(spw_getattr(inode, &before) == 0 && before.size == 0);
	assert(put(inode, "abc", 4093, false) == 0);
	assert(spw_getattr(inode, &attr) == 0);
	assert(attr.size == 4096 && attr.change > before.change);
	/* A row that was read before is corrected. */
	attr = row_of(inode->ino);
	assert(attr.size == 0);
	spw_inode_put(spw_inode_get(&attr, spw_asked()));
	assert(attr.size == 4096);
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

static void a_row_read_before_a_seal_is_not_believed(void)
{
	struct spw_inode *inode = fresh();
	struct spw_attr old;

	assert(spw_writer_begin(inode, NULL) == 0);
	assert(put(inode, "abc", 0, false) == 0);
	old = row_of(inode->ino);
	end(inode);
	spw_inode_put(spw_inode_get(&old, spw_asked()));
	assert(old.size == 3);
	spw_inode_put(inode);
}

static void orphans_are_reclaimed_with_the_last_handle(void)
{
	struct spw_inode *inode = fresh(), *again = get(next_ino);
	struct spw_removed removed = { .ino = next_ino, .kind = SPW_REGULAR, .nlink = 0 };

	assert(again == inode);
	assert(spw_writer_begin(inode, NULL) == 0);
	assert(put(inode, "abc", 0, false) == 0);
	spw_removed(&removed);
	expect(inode, 0, 10, "abc", true);
	end(inode);
	assert(ns.seals == 0); /* a nameless file is never drained */
	spw_inode_put(inode);
	assert(ns.reclaims == 0);
	spw_inode_put(again);
	assert(ns.reclaims == 1);
	/* One that nobody has open goes at once; one with a name left does not. */
	removed.ino = ++next_ino;
	spw_removed(&removed);
	assert(ns.reclaims == 2);
	removed.nlink = 1;
	spw_removed(&removed);
	assert(ns.reclaims == 2);
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
	assert(inode->fd >= 0); /* an open state keeps it */
	spw_fd_release(inode);
	settle();
	assert(inode->fd < 0 && inode->fd_users == 0);
	expect(inode, 0, 10, "abc", true);
	assert(inode->fd < 0);
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
	static const struct spw_inode_ops ops = {
		.open_write = ns_open_write,
		.seal = ns_seal,
		.getattr = ns_getattr,
		.reclaim = ns_reclaim,
	};

	assert(argc == 2);
	spw_inodes_start(&ops);
	assert(spw_files_start("/nonexistent") == ENOENT);
	assert(spw_files_start(argv[1]) == 0);
	assert(spw_sealer_start() == 0);
	bytes_come_back_and_eof_is_exact();
	the_first_writer_opens_and_the_last_one_seals();
	a_refused_open_writes_nothing();
	the_seal_comes_after_the_sync();
	a_failed_sync_stays_failed();
	a_failed_seal_is_tried_again_and_loses_no_size();
	a_writer_that_comes_before_the_seal_goes_on_with_the_version();
	files_that_close_together_are_sealed_together();
	commits_that_wait_together_share_a_sync();
	what_the_namespace_answered_is_not_asked_again();
	an_answer_older_than_a_change_is_not_kept();
	attributes_come_from_the_data_file_while_it_is_written();
	a_row_read_before_a_seal_is_not_believed();
	orphans_are_reclaimed_with_the_last_handle();
	truncation_and_holes();
	no_descriptor_stays_open();
	many_writers_at_once();
	puts("all passed");
	return 0;
}
