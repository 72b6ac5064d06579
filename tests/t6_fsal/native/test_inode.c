/* Tests of files.c and inode.c without Ganesha and without Python, run under sanitizers.
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
	int opens, seals, reclaims, fail_open, fail_seal;
	struct spw_attr row;
	struct spw_sealed last;
} ns;

static pthread_mutex_t ns_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int fdatasync_error;
static atomic_int fdatasyncs;

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

int __wrap_fdatasync(int fd)
{
	atomic_fetch_add(&fdatasyncs, 1);
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

static int ns_seal(uint64_t ino, const struct spw_sealed *data, struct spw_attr *attr)
{
	int rc = ns.fail_seal;

	(void)ino;
	pthread_mutex_lock(&ns_lock);
	if (rc == 0) {
		ns.seals++;
		ns.last = *data;
		if (data->writes > 0) {
			ns.row.size = data->size;
			ns.row.mtime_ns = data->mtime_ns;
			ns.row.change += data->writes;
		}
		*attr = ns.row;
	}
	pthread_mutex_unlock(&ns_lock);
	return rc;
}

static int ns_getattr(uint64_t ino, struct spw_attr *attr)
{
	pthread_mutex_lock(&ns_lock);
	*attr = ns.row;
	attr->ino = ino;
	pthread_mutex_unlock(&ns_lock);
	return 0;
}

static void ns_reclaim(uint64_t ino, uint64_t epoch)
{
	(void)ino;
	(void)epoch;
	pthread_mutex_lock(&ns_lock);
	ns.reclaims++;
	pthread_mutex_unlock(&ns_lock);
}

static uint64_t next_ino = 100;

/* A fresh inode with a fresh row. */
static struct spw_inode *fresh(void)
{
	memset(&ns, 0, sizeof(ns));
	ns.row.kind = SPW_REGULAR;
	ns.row.nlink = 1;
	ns.row.change = 1;
	atomic_store(&fdatasync_error, 0);
	return spw_inode_get(++next_ino, 0);
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
	spw_writer_end(inode);
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
	spw_writer_end(inode);
	assert(ns.seals == 0);
	spw_writer_end(inode);
	assert(ns.seals == 1 && ns.last.size == 6 && ns.last.writes == 2);
	/* A write without an open is a session of its own. */
	assert(put(inode, "g", 6, false) == 0);
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
	spw_writer_end(inode);
	assert(atomic_load(&fdatasyncs) == before + 1 && ns.seals == 1);
	/* What is on disk already is not synced again. */
	assert(spw_writer_begin(inode, NULL) == 0);
	assert(put(inode, "abc", 0, true) == 0);
	before = atomic_load(&fdatasyncs);
	assert(spw_commit(inode) == 0);
	spw_writer_end(inode);
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
	spw_writer_end(inode);
	assert(ns.seals == 0); /* never drained as if it were whole */
	/* Truncated to nothing, none of the lost bytes is left. */
	assert(spw_truncate(inode, 0) == 0);
	assert(put(inode, "new", 0, true) == 0);
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
	assert(spw_getattr(inode, &attr) == 0 && attr.size == 6);
	spw_inode_put(inode);
	inode = spw_inode_get(next_ino, 0);
	assert(spw_getattr(inode, &attr) == 0 && attr.size == 6);
	ns.fail_seal = 0;
	assert(spw_getattr(inode, &attr) == 0 && attr.size == 6 && ns.seals == 1);
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
	assert(ns_getattr(inode->ino, &attr) == 0 && attr.size == 0);
	spw_attr_overlay(&attr);
	assert(attr.size == 4096);
	spw_touch(inode, 1500000000LL * 1000000000LL + 7);
	assert(spw_getattr(inode, &attr) == 0);
	assert(attr.mtime_ns == 1500000000LL * 1000000000LL + 7);
	before = attr;
	spw_writer_end(inode);
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
	assert(ns_getattr(inode->ino, &old) == 0);
	spw_writer_end(inode);
	spw_attr_overlay(&old);
	assert(old.size == 3);
	spw_inode_put(inode);
}

static void orphans_are_reclaimed_with_the_last_handle(void)
{
	struct spw_inode *inode = fresh(), *again = spw_inode_get(next_ino, 0);
	struct spw_removed removed = { .ino = next_ino, .kind = SPW_REGULAR, .nlink = 0 };

	assert(again == inode);
	assert(spw_writer_begin(inode, NULL) == 0);
	assert(put(inode, "abc", 0, false) == 0);
	spw_removed(&removed);
	expect(inode, 0, 10, "abc", true);
	spw_writer_end(inode);
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
	assert(ns.last.size == 1 << 20 && ns.last.used == 0);
	assert(spw_seek(inode, 0, SEEK_DATA, &found) == ENXIO);
	assert(put(inode, "x", 1 << 19, false) == 0);
	assert(spw_seek(inode, 0, SEEK_DATA, &found) == 0 && found > 0 && found <= 1 << 19);
	assert(spw_allocate(inode, 0, 1 << 20, false) == 0);
	assert(spw_seek(inode, 0, SEEK_DATA, &found) == ENXIO);
	assert(ns.last.size == 1 << 20);
	assert(spw_truncate(inode, 3) == 0);
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
		struct spw_inode *inode = spw_inode_get(ino, 0);
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
	bytes_come_back_and_eof_is_exact();
	the_first_writer_opens_and_the_last_one_seals();
	a_refused_open_writes_nothing();
	the_seal_comes_after_the_sync();
	a_failed_sync_stays_failed();
	a_failed_seal_is_tried_again_and_loses_no_size();
	attributes_come_from_the_data_file_while_it_is_written();
	a_row_read_before_a_seal_is_not_believed();
	orphans_are_reclaimed_with_the_last_handle();
	truncation_and_holes();
	no_descriptor_stays_open();
	many_writers_at_once();
	puts("all passed");
	return 0;
}
