/* Tests of data files that lack bytes, or that the disk does not give back: never zeros, never an end. */
#include "fake_namespace.h"

#include "cold.h"
#include "bytes.h"

static atomic_uint_fast64_t bad_from = UINT64_MAX; /* from here on a data file cannot be read */
static atomic_bool disk_gone;                      /* nor can any other file */

/* Return how many bytes the disk gives back of so many, or -1. */
static ssize_t readable(int fd, size_t wanted, off_t offset)
{
	uint64_t bad = atomic_load(&bad_from), at = (uint64_t)offset;
	struct stat st;

	if (atomic_load(&disk_gone) || at >= bad) {
		errno = EIO;
		return -1;
	}
	assert(fstat(fd, &st) == 0);
	return (ssize_t)(at + wanted > bad ? bad - at : wanted);
}

ssize_t __real_preadv(int fd, const struct iovec *iov, int count, off_t offset);
ssize_t __wrap_preadv(int fd, const struct iovec *iov, int count, off_t offset);

ssize_t __wrap_preadv(int fd, const struct iovec *iov, int count, off_t offset)
{
	struct iovec all[4];
	size_t wanted = 0;
	ssize_t given;

	assert(count <= 4);
	for (int i = 0; i < count; i++)
		wanted += iov[i].iov_len;
	given = readable(fd, wanted, offset);
	if (given < 0)
		return -1;
	for (int i = 0; i < count; i++) {
		all[i] = iov[i];
		if ((ssize_t)all[i].iov_len > given)
			all[i].iov_len = (size_t)given;
		given -= (ssize_t)all[i].iov_len;
	}
	return __real_preadv(fd, all, count, offset);
}

ssize_t __real_pread(int fd, void *buffer, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *buffer, size_t bytes, off_t offset);

ssize_t __wrap_pread(int fd, void *buffer, size_t bytes, off_t offset)
{
	struct stat st;
	ssize_t given;

	assert(fstat(fd, &st) == 0);
	if (st.st_size == 3 && !atomic_load(&disk_gone)) /* the stamp */
		return __real_pread(fd, buffer, bytes, offset);
	given = readable(fd, bytes, offset);
	return given < 0 ? -1 : __real_pread(fd, buffer, (size_t)given, offset);
}

int __real_spw_fd_get_to_read(struct spw_inode *inode, struct spw_reader *reader);
int __wrap_spw_fd_get_to_read(struct spw_inode *inode, struct spw_reader *reader);

static void (*overtaking)(struct spw_inode *inode); /* what overtakes the next reader */

int __wrap_spw_fd_get_to_read(struct spw_inode *inode, struct spw_reader *reader)
{
	int rc = __real_spw_fd_get_to_read(inode, reader);
	void (*overtake)(struct spw_inode *inode) = overtaking;

	overtaking = NULL;
	if (overtake != NULL)
		overtake(inode);
	return rc;
}

static void path_of(char *name, size_t bytes, uint64_t ino, uint64_t epoch)
{
	snprintf(name, bytes, "%02x/%llu.%llu", (unsigned int)(ino % 256), (unsigned long long)ino,
		 (unsigned long long)epoch);
}

/* Cut the data file of the present epoch as a disk does. size -1: it is gone. */
static void cut(uint64_t ino, off_t size)
{
	char name[48];
	int fd;

	path_of(name, sizeof(name), ino, ns.row.epoch);
	if (size < 0) {
		assert(unlinkat(spw_files_dir_fd(), name, 0) == 0);
		return;
	}
	fd = openat(spw_files_dir_fd(), name, O_WRONLY);
	assert(fd >= 0 && ftruncate(fd, size) == 0);
	close(fd);
}

/* Make the data file of the present epoch as the hydrator does. */
static void hydrate(uint64_t ino, const char *text)
{
	char name[48];
	int fd;

	path_of(name, sizeof(name), ino, ns.row.epoch);
	fd = openat(spw_files_dir_fd(), name, O_RDWR | O_CREAT, 0600);
	assert(fd >= 0 && ftruncate(fd, (off_t)ns.row.size) == 0);
	assert(pwrite(fd, text, strlen(text), 0) == (ssize_t)strlen(text));
	close(fd);
}

static bool is_aside(uint64_t ino, uint64_t epoch)
{
	char name[64];

	snprintf(name, sizeof(name), "set-aside/%llu.%llu", (unsigned long long)ino,
		 (unsigned long long)epoch);
	return faccessat(spw_files_dir_fd(), name, F_OK, 0) == 0;
}

/* Return a sealed file of six bytes. */
static struct spw_inode *sealed(bool is_stored)
{
	struct spw_inode *inode = fresh();

	assert(put(inode, "abcdef", 0, true) == 0);
	settle();
	assert(ns.row.size == 6);
	ns.is_stored = is_stored;
	ns.seals = 0;
	atomic_store(&bad_from, UINT64_MAX);
	return inode;
}

static int read_at(struct spw_inode *inode, uint64_t offset, size_t length, size_t *amount, bool *eof)
{
	char buffer[64];
	struct iovec iov = { .iov_base = buffer, .iov_len = length };

	return spw_read(inode, &iov, 1, offset, amount, eof);
}

static int read_some(struct spw_inode *inode)
{
	size_t amount;
	bool eof;

	return read_at(inode, 0, 8, &amount, &eof);
}

/* Take bytes from the data file: the end, all, or what can be read of it. */
enum loss { CUT, CUT_TO_NOTHING, GONE, UNREADABLE, UNREADABLE_END, LOSSES };

static void lose(uint64_t ino, enum loss loss)
{
	if (loss == UNREADABLE || loss == UNREADABLE_END)
		atomic_store(&bad_from, loss == UNREADABLE ? 0 : 4);
	else
		cut(ino, loss == GONE ? -1 : loss == CUT ? 4 : 0);
}

static void mend_disk(void)
{
	atomic_store(&bad_from, UINT64_MAX);
}

static void lost_bytes_that_only_the_disk_had_are_an_error(void)
{
	for (enum loss loss = CUT; loss < LOSSES; loss++) {
		struct spw_inode *inode = sealed(false);
		size_t amount;
		uint64_t found;
		bool eof;

		lose(next_ino, loss);
		assert(read_at(inode, 3, 3, &amount, &eof) == EIO);
		assert(ns.losses == 1 && ns.damages == 1 && ns.damaged == next_ino);
		assert(strstr(ns.reason, loss == GONE ? "is missing, 6 bytes expected"
				      : loss == CUT ? "has 4 bytes, 6 expected"
				      : loss == CUT_TO_NOTHING ? "has 0 bytes, 6 expected"
							       : "cannot be read: Input/output error"));
		/* It is damaged as after a failed sync: also for later objects of the inode. */
		mend_disk();
		spw_inode_put(inode);
		inode = get(next_ino);
		assert(read_some(inode) == EIO && spw_seek(inode, 0, SEEK_DATA, &found) == EIO);
		assert(put(inode, "x", 6, true) == EIO && spw_truncate(inode, 3) == EIO);
		assert(spw_writer_begin(inode, NULL) == 0); /* a client opens it to empty it */
		end(inode);
		assert(ns.seals == 0 && ns.row.size == 6 && !is_aside(next_ino, 0));
		assert(spw_truncate(inode, 0) == 0 && ns.damaged == 0);
		assert(put(inode, "new", 0, true) == 0);
		settle();
		expect(inode, 0, 8, "new", true);
		spw_inode_put(inode);
	}
}

static void lost_bytes_that_the_bucket_has_are_fetched_again(void)
{
	for (enum loss loss = CUT; loss < LOSSES; loss++) {
		struct spw_inode *inode = sealed(true);
		struct spw_attr before, after;
		struct spw_wanted wanted;

		assert(spw_getattr(inode, &before) == 0);
		spw_fd_hold(inode); /* a client has it open */
		lose(next_ino, loss);
		assert(read_some(inode) == EINPROGRESS);
		mend_disk();
		assert(ns.losses == 1 && ns.damages == 0 && ns.row.epoch == 1);
		assert(is_aside(next_ino, 0) == (loss != GONE) && !has_epoch(next_ino, 0));
		assert(spw_getattr(inode, &after) == 0);
		assert(after.size == 6 && after.change == before.change);
		assert(spw_cold_next(1, 0, &wanted) == 0 && wanted.attr.epoch == 1);
		assert(wanted.length == 6);
		hydrate(next_ino, "abcdef");
		assert(spw_present(inode, 1, 0, 6) == 0);
		expect(inode, 0, 8, "abcdef", true);
		assert(spw_arrived(inode, 1, VERSION, &after) == 0);
		expect(inode, 2, 4, "cdef", true);
		spw_fd_release(inode);
		expect(inode, 0, 8, "abcdef", true);
		spw_inode_put(inode);
	}
}

/* A call that would change or judge the file meets the loss first. */
static void a_change_of_a_file_that_lacks_bytes_waits_for_them(void)
{
	for (int i = 0; i < 5; i++) {
		struct spw_inode *inode = sealed(true);
		uint64_t found;
		int rc;

		cut(next_ino, 4);
		rc = i == 0 ? put(inode, "xy", 0, true)
		     : i == 1 ? spw_truncate(inode, 5)
		     : i == 2 ? spw_allocate(inode, 0, 8, true)
		     : i == 3 ? spw_seek(inode, 0, SEEK_HOLE, &found)
			      : spw_writer_begin(inode, NULL);
		assert(rc == EAGAIN && ns.losses == 1 && ns.row.epoch == 1 && ns.opens == 1);
		settle();
		assert(ns.seals == 0 && ns.row.size == 6);
		spw_inode_put(inode);
		inode = sealed(true);
		cut(next_ino, 4);
		assert(spw_truncate(inode, 0) == 0); /* this needs no bytes */
		assert(put(inode, "new", 0, true) == 0);
		settle();
		assert(ns.last.size == 3);
		spw_inode_put(inode);
	}
}

/* No version without the lost bytes is sealed in place of the one that the row has. */
static void a_writer_of_a_file_that_lacks_bytes_seals_nothing(void)
{
	struct spw_inode *inode = sealed(false);

	cut(next_ino, 4);
	assert(put(inode, "x", 0, true) == EIO);
	settle();
	assert(ns.seals == 0 && ns.row.size == 6 && ns.damaged == next_ino);
	spw_inode_put(inode);
}

static void a_bad_sector_of_an_open_file_is_an_error(void)
{
	struct spw_inode *inode = sealed(true);

	assert(spw_writer_begin(inode, NULL) == 0);
	assert(put(inode, "ABC", 0, true) == 0);
	lose(next_ino, UNREADABLE_END);
	expect(inode, 0, 4, "ABCd", false);
	assert(read_some(inode) == EIO);
	assert(ns.losses == 0 && ns.damages == 1); /* the bucket lacks what was written */
	mend_disk();
	end(inode);
	assert(ns.seals == 0 && read_some(inode) == EIO);
	assert(spw_truncate(inode, 0) == 0);
	settle();
	spw_inode_put(inode);
}

static void what_a_writer_cuts_is_not_lost(void)
{
	struct spw_inode *inode = sealed(true);

	assert(spw_writer_begin(inode, NULL) == 0);
	assert(spw_truncate(inode, 2) == 0);
	expect(inode, 0, 8, "ab", true);
	end(inode);
	assert(ns.row.size == 2);
	expect(inode, 0, 8, "ab", true);
	expect(inode, 4, 8, "", true);
	assert(ns.losses == 0 && ns.damages == 0);
	spw_inode_put(inode);
}

/* The disk does not give back the stamp either: nothing is known of any one file. */
static void a_disk_that_is_gone_condemns_no_file(void)
{
	for (int is_stored = 0; is_stored < 2; is_stored++) {
		struct spw_inode *inode = sealed(is_stored);

		atomic_store(&disk_gone, true);
		assert(read_some(inode) == EIO && read_some(inode) == EIO);
		atomic_store(&disk_gone, false);
		assert(ns.losses == 0 && ns.damages == 0 && ns.row.epoch == 0);
		expect(inode, 0, 8, "abcdef", true);
		spw_inode_put(inode);
	}
}

static void a_failing_disk_does_not_fetch_for_ever(void)
{
	struct spw_inode *inode = sealed(true);

	lose(next_ino, UNREADABLE);
	assert(read_some(inode) == EINPROGRESS && ns.losses == 1);
	hydrate(next_ino, "abcdef");
	assert(spw_present(inode, 1, 0, 6) == 0);
	assert(read_some(inode) == EIO && read_some(inode) == EIO);
	assert(ns.losses == 1 && ns.row.epoch == 1);
	usleep(1000 * (SPW_LOST_AGAIN_MS + 50));
	/* It has not arrived: what is lost of it is only a copy, whatever the bucket has. */
	ns.is_stored = false;
	assert(read_some(inode) == EINPROGRESS);
	assert(ns.losses == 2 && ns.row.epoch == 2 && ns.damages == 0 && is_aside(next_ino, 1));
	mend_disk();
	spw_inode_put(inode);
}

static void bytes_of_an_absent_file_that_vanish_are_fetched_again(void)
{
	struct spw_attr answer;

	for (enum loss loss = CUT; loss < LOSSES; loss++) {
		struct spw_inode *inode = sealed(true);

		assert(spw_evict(inode, VERSION, &answer) == 0);
		hydrate(next_ino, "abcdef");
		assert(spw_present(inode, 1, 0, 6) == 0);
		lose(next_ino, loss);
		assert(read_some(inode) == EINPROGRESS);
		mend_disk();
		assert(ns.losses == 1 && ns.row.epoch == 2 && ns.damages == 0);
		assert(read_some(inode) == EINPROGRESS);
		spw_inode_put(inode);
	}
}

/* The call that gives the file up may have been committed although it failed. */
static void a_loss_without_an_answer_is_asked_for(void)
{
	struct spw_inode *inode = sealed(true);

	cut(next_ino, 4);
	ns.fail_lost = EAGAIN; /* the database is away */
	assert(read_some(inode) == EAGAIN && ns.row.epoch == 0);
	ns.fail_lost = EIO;
	ns.loses_all_the_same = true;
	ns.fail_getattr = EAGAIN;
	assert(read_some(inode) == EIO && ns.row.epoch == 1);
	assert(read_some(inode) == EAGAIN && put(inode, "x", 0, true) == EAGAIN);
	ns.fail_getattr = 0;
	ns.fail_lost = 0;
	assert(read_some(inode) == EINPROGRESS && ns.losses == 1);
	spw_inode_put(inode);
}

/* Give the file up, and have another reader open the data file of the next epoch, which is empty. */
static void give_up(struct spw_inode *inode)
{
	int fd;

	assert(spw_unreadable(inode, inode->epoch, EIO) == EAGAIN);
	hydrate(inode->ino, "");
	assert(spw_fd_get(inode, SPW_ABSENT_FAILS, &fd) == 0);
	spw_fd_release(inode);
}

static void holes_of_the_next_data_file_are_no_bytes(void)
{
	struct spw_attr answer;
	uint64_t found;

	for (int i = 0; i < 4; i++) {
		struct spw_inode *inode = sealed(true);

		if (i % 2 != 0) {
			assert(spw_evict(inode, VERSION, &answer) == 0);
			hydrate(next_ino, "abcdef");
			assert(spw_present(inode, 1, 0, 6) == 0);
		}
		overtaking = give_up;
		if (i < 2)
			assert(read_some(inode) == EINPROGRESS);
		else
			assert(spw_seek(inode, 0, SEEK_HOLE, &found) == EAGAIN);
		assert(overtaking == NULL);
		spw_inode_put(inode);
	}
}

static void several_buffers_are_read_on_to_the_end(void)
{
	char one[2], two[3], three[8];
	struct iovec iov[] = { { one, 2 }, { two, 3 }, { three, 8 } };
	struct spw_inode *inode = sealed(false);
	size_t amount;
	bool eof;

	atomic_store(&bad_from, 5); /* the kernel answers the bytes before it */
	assert(spw_read(inode, iov, 3, 0, &amount, &eof) == EIO);
	mend_disk();
	assert(ns.losses == 1);
	spw_inode_put(inode);
	inode = sealed(false);
	assert(spw_read(inode, iov, 3, 0, &amount, &eof) == 0 && amount == 6 && eof);
	assert(memcmp(one, "ab", 2) == 0 && memcmp(two, "cde", 3) == 0 && three[0] == 'f');
	spw_inode_put(inode);
}

/* Tell as the scrub does what it found of a file. */
static int found(struct spw_inode *inode, uint64_t epoch, enum spw_finding finding, uint64_t version,
		 struct spw_control_reply *reply)
{
	struct spw_control_request asked = {
		.request = { .ino = inode->ino, .ino2 = epoch, .cookie = version,
			     .name = "one byte differs", .name_len = 8 },
		.offset = finding,
	};

	memset(reply, 0, sizeof(*reply));
	return spw_cold_serve(SPW_CONTROL_LOST, &asked, reply);
}

static void what_the_scrub_finds_is_given_up_or_damaged(void)
{
	struct spw_control_reply reply;
	struct spw_inode *inode = sealed(true);

	assert(found(inode, 1, SPW_BYTES_DIFFER, VERSION, &reply) == ESTALE);
	assert(found(inode, 0, SPW_BYTES_DIFFER, VERSION + 1, &reply) == EBUSY);
	assert(found(inode, 0, SPW_FINDINGS, VERSION, &reply) == EINVAL);
	assert(found(inode, 0, SPW_FOUND_AGAIN, VERSION, &reply) == EBUSY); /* it is not absent */
	assert(spw_writer_begin(inode, NULL) == 0);
	assert(found(inode, 0, SPW_BYTES_DIFFER, VERSION, &reply) == EBUSY);
	end(inode);
	settle();
	assert(ns.losses == 0 && reply.attr.ino == 0);
	assert(found(inode, 0, SPW_BYTES_DIFFER, VERSION, &reply) == 0);
	assert(reply.attr.ino == next_ino && reply.attr.residency == SPW_ABSENT);
	assert(ns.losses == 1 && ns.damages == 0 && ns.row.epoch == 1 && is_aside(next_ino, 0));
	assert(strcmp(ns.reason, "one byte") == 0);
	assert(read_some(inode) == EINPROGRESS);
	hydrate(next_ino, "abcdef");
	assert(spw_present(inode, 1, 0, 6) == 0);
	assert(spw_arrived(inode, 1, VERSION, &reply.attr) == 0);
	/* A failing disk must not fetch it again and again. */
	assert(found(inode, 1, SPW_BYTES_DIFFER, VERSION, &reply) == EIO && ns.losses == 1);
	/* The bucket lost it too, whatever the rows say: the bytes that are left stay. */
	assert(found(inode, 1, SPW_BYTES_GONE, VERSION, &reply) == 0);
	assert(reply.attr.residency == SPW_RESIDENT && ns.damages == 1);
	assert(has_epoch(next_ino, 1) && read_some(inode) == EIO);
	assert(found(inode, 1, SPW_BYTES_GONE, VERSION, &reply) == EIO && ns.damages == 1);
	spw_inode_put(inode);
}

static void an_object_that_is_back_ends_the_damage_of_an_absent_file(void)
{
	struct spw_control_reply reply;
	struct spw_inode *inode = sealed(true);

	assert(spw_evict(inode, VERSION, &reply.attr) == 0);
	assert(found(inode, 1, SPW_BYTES_GONE, VERSION, &reply) == 0 && ns.damages == 1);
	assert(reply.attr.residency == SPW_ABSENT && ns.row.epoch == 1);
	spw_inode_put(inode);
	inode = get(next_ino);
	assert(read_some(inode) == EIO);
	ns.fail_damage = EAGAIN;
	assert(found(inode, 1, SPW_FOUND_AGAIN, VERSION, &reply) == EAGAIN);
	assert(read_some(inode) == EIO);
	ns.fail_damage = 0;
	assert(found(inode, 1, SPW_FOUND_AGAIN, VERSION, &reply) == 0 && ns.damaged == 0);
	assert(read_some(inode) == EINPROGRESS);
	spw_inode_put(inode);
}

int main(int argc, char **argv)
{
	assert(argc == 2);
	fake_namespace_start(argv[1]);
	assert(spw_cold_start(0) == 0);
	lost_bytes_that_only_the_disk_had_are_an_error();
	lost_bytes_that_the_bucket_has_are_fetched_again();
	a_change_of_a_file_that_lacks_bytes_waits_for_them();
	a_writer_of_a_file_that_lacks_bytes_seals_nothing();
	a_bad_sector_of_an_open_file_is_an_error();
	what_a_writer_cuts_is_not_lost();
	a_disk_that_is_gone_condemns_no_file();
	a_failing_disk_does_not_fetch_for_ever();
	bytes_of_an_absent_file_that_vanish_are_fetched_again();
	a_loss_without_an_answer_is_asked_for();
	holes_of_the_next_data_file_are_no_bytes();
	several_buffers_are_read_on_to_the_end();
	what_the_scrub_finds_is_given_up_or_damaged();
	an_object_that_is_back_ends_the_damage_of_an_absent_file();
	puts("all passed");
	return 0;
}
