/* Tests of when a data file is made, kept and synced. Lost bytes never become an empty file. */
#include "fake_namespace.h"

#include "util.h"

static void remove_data(uint64_t ino)
{
	char name[32];

	snprintf(name, sizeof(name), "%02x/%llu.0", (unsigned int)(ino % 256),
		 (unsigned long long)ino);
	assert(unlinkat(spw_files_dir_fd(), name, 0) == 0);
}

static void make_data(uint64_t ino, const char *text)
{
	char name[32];
	int fd;

	snprintf(name, sizeof(name), "%02x/%llu.0", (unsigned int)(ino % 256),
		 (unsigned long long)ino);
	fd = openat(spw_files_dir_fd(), name, O_WRONLY | O_CREAT | O_EXCL, 0600);
	assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

int __real_openat(int directory, const char *name, int flags, mode_t mode);
int __wrap_openat(int directory, const char *name, int flags, mode_t mode);

static bool is_read_only; /* the disk was mounted read-only after an error */

int __wrap_openat(int directory, const char *name, int flags, mode_t mode)
{
	if (is_read_only && (flags & (O_RDWR | O_WRONLY | O_CREAT))) {
		errno = EROFS;
		return -1;
	}
	return __real_openat(directory, name, flags, mode);
}

/* Return a sealed file whose data file is lost. */
static struct spw_inode *robbed(void)
{
	struct spw_inode *inode = fresh();

	assert(put(inode, "abcdef", 0, false) == 0);
	settle();
	assert(ns.row.size == 6);
	remove_data(next_ino);
	ns.seals = 0;
	ns.last = (struct spw_sealed){ .size = 6 };
	return inode;
}

static int read_some(struct spw_inode *inode)
{
	char buffer[8];
	struct iovec iov = { .iov_base = buffer, .iov_len = sizeof(buffer) };
	size_t amount;
	bool eof;

	return spw_read(inode, &iov, 1, 0, &amount, &eof);
}

static void lost_bytes_are_not_written_over(void)
{
	struct spw_inode *inode = robbed();
	uint64_t found;

	assert(read_some(inode) == EIO);
	assert(put(inode, "x", 6, false) == EIO);
	assert(spw_truncate(inode, 3) == EIO);
	assert(spw_allocate(inode, 0, 4096, true) == EIO);
	assert(spw_seek(inode, 0, SEEK_DATA, &found) == EIO);
	settle();
	assert(!has_bytes(next_ino));
	assert(ns.last.writes == 0 && ns.row.size == 6); /* no empty version was sealed */
	spw_inode_put(inode);
}

static void a_file_whose_bytes_are_lost_is_whole_when_it_is_emptied(void)
{
	struct spw_inode *inode = robbed();

	atomic_store(&directory_syncs, 0);
	assert(spw_truncate(inode, 0) == 0);
	assert(atomic_load(&directory_syncs) == 1); /* a crash must not bring the loss back */
	assert(put(inode, "new", 0, true) == 0);
	settle();
	expect(inode, 0, 8, "new", true);
	assert(ns.last.size == 3);
	spw_inode_put(inode);
}

/* The disk loses the data file while the file is open for writing. */
static void bytes_that_went_while_the_file_was_written_are_not_made_anew(void)
{
	struct spw_inode *inode = fresh();

	ns.never_sealed = next_ino;
	assert(put(inode, "abc", 0, true) == 0);
	assert(!spw_queue_flush(1)); /* not sealed, so the descriptor is not kept */
	remove_data(next_ino);
	assert(put(inode, "x", 3, false) == EIO);
	assert(!has_bytes(next_ino));
	assert(spw_truncate(inode, 0) == 0);
	ns.never_sealed = 0;
	settle();
	spw_inode_put(inode);
}

/* Answer a client's CREATE. Returns the attributes, and in *asked the time of the request. */
static struct spw_attr create_row(uint64_t *asked)
{
	spw_inode_put(fresh());
	*asked = spw_asked();
	return row_of(++next_ino);
}

static struct spw_inode *handle_of(struct spw_attr answer, uint64_t asked)
{
	return spw_inode_get(&answer, asked);
}

static bool is_aside(uint64_t ino, const char *suffix, off_t size)
{
	struct stat st;
	char name[64];

	snprintf(name, sizeof(name), "set-aside/%llu.0%s", (unsigned long long)ino, suffix);
	return fstatat(spw_files_dir_fd(), name, &st, 0) == 0 && st.st_size == size;
}

static void a_new_inode_never_shows_what_was_there_before(void)
{
	struct spw_attr created;
	struct spw_inode *inode;
	uint64_t asked;

	created = create_row(&asked);
	make_data(next_ino, "of another life");
	inode = handle_of(created, asked);
	assert(spw_writer_begin(inode, &created) == 0);
	assert(!has_bytes(next_ino) && is_aside(next_ino, "", 15));
	assert(put(inode, "new", 0, true) == 0);
	expect(inode, 0, 8, "new", true);
	end(inode);
	spw_inode_put(inode);

	created = create_row(&asked);
	make_data(next_ino, "not for writing");
	inode = handle_of(created, asked);
	assert(spw_made_closed(inode, &created) == 0);
	assert(!has_bytes(next_ino) && is_aside(next_ino, "", 15));
	/* The same happens again: the file that was moved aside is not overwritten. */
	make_data(next_ino, "of a third");
	assert(spw_made_closed(inode, &created) == 0);
	assert(!has_bytes(next_ino) && is_aside(next_ino, "~1", 10));
	assert(spw_made_closed(inode, &created) == 0);
	spw_inode_put(inode);
}

static void their_write(struct spw_inode *inode, bool closes)
{
	assert(spw_writer_begin(inode, NULL) == 0);
	assert(put(inode, "theirs", 0, true) == 0);
	if (closes)
		end(inode);
}

static void the_bytes_of_who_overtook_a_creation_stay(void)
{
	/* The bits of round: for_writing, is_closed and is_forgotten (no object of it is left). */
	for (unsigned int round = 0; round < 8; round++) {
		bool for_writing = round & 1, is_closed = round & 2, is_forgotten = is_closed && (round & 4);
		struct spw_attr created;
		struct spw_inode *inode, *theirs;
		uint64_t asked;

		created = create_row(&asked);
		theirs = get(next_ino);
		their_write(theirs, is_closed);
		if (is_forgotten)
			spw_inode_put(theirs);
		inode = handle_of(created, asked);
		if (for_writing) {
			assert(spw_writer_begin(inode, &created) == 0);
			end(inode);
		} else {
			assert(spw_made_closed(inode, &created) == 0);
		}
		assert(has_bytes(next_ino) && !is_aside(next_ino, "", 6));
		expect(inode, 0, 8, "theirs", true);
		if (!is_closed)
			end(theirs);
		if (!is_forgotten)
			spw_inode_put(theirs);
		settle();
		assert(ns.last.size == 6 || ns.row.size == 6);
		spw_inode_put(inode);
	}
}

static void emptying_what_is_empty_syncs_nothing(void)
{
	struct spw_inode *inode = fresh();
	struct spw_attr before, attr;
	int syncs;

	assert(spw_getattr(inode, &before) == 0);
	syncs = atomic_load(&fdatasyncs) + atomic_load(&fsyncs) + atomic_load(&directory_syncs);
	for (unsigned int i = 0; i < 3; i++) { /* without a data file, and with one */
		assert(spw_truncate(inode, 0) == 0);
		assert(spw_getattr(inode, &attr) == 0);
		assert(attr.mtime_ns > before.mtime_ns && attr.change > before.change);
		before = attr;
		settle();
	}
	assert(ns.seals == 3 && ns.last.writes == 1 && ns.row.size == 0);
	assert(atomic_load(&fdatasyncs) + atomic_load(&fsyncs) + atomic_load(&directory_syncs) == syncs);
	/* The first bytes are synced together with the data file's directory entry. */
	assert(put(inode, "abc", 0, true) == 0);
	assert(atomic_load(&directory_syncs) == 1);
	settle();
	spw_inode_put(inode);
}

static void emptying_what_has_bytes_syncs_the_file_alone(void)
{
	struct spw_inode *inode = fresh();
	int before;

	assert(put(inode, "abc", 0, false) == 0);
	settle();
	spw_inode_put(inode);
	inode = get(next_ino);
	before = atomic_load(&fdatasyncs);
	atomic_store(&directory_syncs, 0);
	assert(spw_truncate(inode, 0) == 0);
	assert(atomic_load(&fdatasyncs) == before + 1 && atomic_load(&directory_syncs) == 0);
	settle();
	assert(atomic_load(&fdatasyncs) == before + 1 && ns.row.size == 0);
	spw_inode_put(inode);
}

static void a_disk_that_is_read_only_is_read(void)
{
	struct spw_inode *inode = fresh();
	uint64_t found;

	assert(put(inode, "abc", 0, false) == 0);
	settle();
	is_read_only = true;
	spw_fd_hold(inode); /* a client has it open for reading */
	expect(inode, 0, 8, "abc", true);
	assert(spw_seek(inode, 0, SEEK_DATA, &found) == 0 && found == 0);
	assert(put(inode, "x", 0, true) == EROFS && spw_truncate(inode, 1) == EROFS);
	assert(spw_truncate(inode, 0) == EROFS && spw_allocate(inode, 0, 9, true) == EROFS);
	settle();
	expect(inode, 0, 8, "abc", true);
	assert(ns.row.size == 3 && ns.damages == 0);
	is_read_only = false; /* the client that reads has the descriptor still */
	assert(put(inode, "x", 0, true) == 0);
	expect(inode, 0, 8, "xbc", true);
	settle();
	spw_fd_release(inode);
	expect(inode, 0, 8, "xbc", true);
	spw_inode_put(inode);
}

static void times_that_do_not_fit_are_cut(void)
{
	const struct timespec late = { .tv_sec = 9300000000, .tv_nsec = 1 };
	const struct timespec early = { .tv_sec = -9300000000 };
	const struct timespec last = { .tv_sec = 9223372036, .tv_nsec = 999999999 };
	const struct timespec fits = { .tv_sec = 9223372036, .tv_nsec = 5 };

	assert(spw_ns(&late) == INT64_MAX && spw_ns(&last) == INT64_MAX);
	assert(spw_ns(&early) == INT64_MIN);
	assert(spw_ns(&fits) == 9223372036000000005);
}

int main(int argc, char **argv)
{
	assert(argc == 2);
	fake_namespace_start(argv[1]);
	lost_bytes_are_not_written_over();
	a_file_whose_bytes_are_lost_is_whole_when_it_is_emptied();
	bytes_that_went_while_the_file_was_written_are_not_made_anew();
	a_new_inode_never_shows_what_was_there_before();
	the_bytes_of_who_overtook_a_creation_stay();
	emptying_what_is_empty_syncs_nothing();
	emptying_what_has_bytes_syncs_the_file_alone();
	a_disk_that_is_read_only_is_read();
	times_that_do_not_fit_are_cut();
	puts("all passed");
	return 0;
}
