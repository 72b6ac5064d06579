/* Tests of evictions against everything that may use the file at the same time. */
#include "fake_namespace.h"

#include "cold.h"

static struct spw_attr answer;

/* Return a sealed file with bytes that nothing has open. */
static struct spw_inode *sealed(const char *text)
{
	struct spw_inode *inode = fresh();

	assert(put(inode, text, 0, true) == 0);
	settle();
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

static void an_open_file_stays(void)
{
	struct spw_inode *inode = sealed("abc");

	spw_fd_hold(inode); /* a client has it open for reading */
	assert(spw_evict(inode, VERSION, &answer) == EBUSY);
	expect(inode, 0, 8, "abc", true);
	spw_fd_release(inode);
	ns.never_sealed = next_ino;
	assert(put(inode, "x", 3, true) == 0);
	assert(!spw_queue_flush(1)); /* not sealed: the namespace has it open for writing */
	assert(inode->fd_users == 0 && inode->writers == 0);
	assert(spw_evict(inode, VERSION, &answer) == EBUSY);
	ns.never_sealed = 0;
	settle();
	assert(spw_evict(inode, VERSION + 1, &answer) == EBUSY); /* the namespace refuses */
	assert(has_bytes(next_ino) && ns.row.epoch == 0);
	expect(inode, 0, 8, "abcx", true);
	spw_inode_put(inode);
}

/* The database is older than the disk, or bytes were lost. */
static void a_data_file_that_is_not_that_of_its_row_stays(void)
{
	struct spw_inode *inode = sealed("abc");
	char name[48];
	int fd;

	snprintf(name, sizeof(name), "%02x/%llu.0", (unsigned int)(next_ino % 256),
		 (unsigned long long)next_ino);
	fd = openat(spw_files_dir_fd(), name, O_WRONLY | O_APPEND | O_CLOEXEC);
	assert(fd >= 0 && write(fd, "def", 3) == 3);
	assert(spw_evict(inode, VERSION, &answer) == EBUSY);
	assert(has_bytes(next_ino) && ns.row.epoch == 0);
	assert(ftruncate(fd, 3) == 0 && close(fd) == 0);
	assert(unlinkat(spw_files_dir_fd(), name, 0) == 0); /* an eviction of it was lost */
	assert(spw_evict(inode, VERSION, &answer) == 0 && answer.residency == SPW_ABSENT);
	spw_inode_put(inode);
}

static void an_evicted_file_has_no_bytes_and_keeps_its_attributes(void)
{
	struct spw_inode *inode = sealed("abc");
	struct spw_attr attr;
	uint64_t found;

	assert(spw_evict(inode, VERSION, &answer) == 0);
	assert(answer.epoch == 1 && answer.residency == SPW_ABSENT);
	assert(ns.evict_saw_file); /* a crash at the commit would have lost nothing */
	assert(!has_bytes(next_ino));
	assert(spw_getattr(inode, &attr) == 0 && attr.size == 3);
	assert(read_some(inode) == EINPROGRESS);
	assert(put(inode, "x", 0, true) == EAGAIN && spw_truncate(inode, 1) == EAGAIN);
	assert(spw_allocate(inode, 0, 10, true) == EAGAIN);
	assert(spw_seek(inode, 0, SEEK_HOLE, &found) == EAGAIN);
	assert(ns.row.residency == SPW_ABSENT && !has_epoch(next_ino, 1));
	assert(spw_commit(inode) == 0);
	spw_inode_put(inode);
	inode = get(next_ino); /* an object that is made again knows it */
	assert(read_some(inode) == EINPROGRESS);
	spw_inode_put(inode);
}

struct race {
	struct spw_inode *inode;
	int rc;
};

static void *evict(void *argument)
{
	struct race *race = argument;

	race->rc = spw_evict(race->inode, VERSION, &answer);
	return NULL;
}

static void *write_late(void *argument)
{
	struct race *race = argument;

	race->rc = put(race->inode, "new", 0, true);
	return NULL;
}

/* While the eviction is in the namespace, nothing opens the old data file. */
static void a_writer_during_the_call_never_gets_the_old_data_file(void)
{
	struct race evicting = { .inode = sealed("abc") }, writing = { .inode = evicting.inode };
	pthread_t evictor, writer;
	int fd;

	atomic_store(&evict_began, false);
	atomic_store(&evict_held, true);
	assert(pthread_create(&evictor, NULL, evict, &evicting) == 0);
	while (!atomic_load(&evict_began))
		usleep(1000);
	assert(read_some(evicting.inode) == EAGAIN);
	assert(spw_fd_get(evicting.inode, SPW_ABSENT_IS_EMPTY, &fd) == EAGAIN);
	assert(pthread_create(&writer, NULL, write_late, &writing) == 0);
	usleep(50000);
	atomic_store(&evict_held, false);
	pthread_join(evictor, NULL);
	pthread_join(writer, NULL);
	assert(evicting.rc == 0 && writing.rc == EAGAIN);
	assert(!has_epoch(next_ino, 0) && !has_epoch(next_ino, 1));
	spw_inode_put(evicting.inode);
}

/* The namespace failed after its commit: the next data file is that of the row. */
static void an_eviction_without_an_answer_is_asked_for(void)
{
	struct spw_inode *inode = sealed("abc");
	uint64_t found;

	ns.fail_evict = EIO;
	assert(spw_evict(inode, VERSION, &answer) == EIO); /* it was not committed */
	expect(inode, 0, 8, "abc", true);
	ns.evicts_all_the_same = true;
	ns.fail_getattr = EAGAIN;
	assert(spw_evict(inode, VERSION, &answer) == EIO);
	assert(read_some(inode) == EAGAIN && put(inode, "x", 0, true) == EAGAIN);
	assert(spw_seek(inode, 0, SEEK_HOLE, &found) == EAGAIN && inode->leaving);
	ns.fail_getattr = 0;
	assert(read_some(inode) == EINPROGRESS); /* a reader asks: perhaps only readers come */
	ns.fail_getattr = EAGAIN;
	assert(spw_evict(inode, VERSION, &answer) == EIO && inode->leaving);
	ns.fail_getattr = 0;
	assert(spw_seek(inode, 0, SEEK_HOLE, &found) == EAGAIN && !inode->leaving);
	assert(has_epoch(next_ino, 0)); /* the next start deletes it: the row of the eviction is there */
	spw_unlink(next_ino, 0);
	spw_inode_put(inode);
}

/* The namespace refuses for certain: the file is used as before. */
static void a_refused_eviction_asks_nothing(void)
{
	struct spw_inode *inode = sealed("abc");

	ns.fail_evict = EAGAIN;
	ns.fail_getattr = EAGAIN;
	assert(spw_evict(inode, VERSION, &answer) == EAGAIN);
	expect(inode, 0, 8, "abc", true);
	spw_inode_put(inode);
}

/* A look-up that was answered before an eviction arrives after it, and no object is left. */
static void an_old_answer_does_not_bring_the_old_epoch_back(void)
{
	struct spw_inode *inode = sealed("abc");
	uint64_t asked = spw_asked();
	struct spw_attr old = row_of(next_ino);

	assert(spw_evict(inode, VERSION, &answer) == 0);
	spw_inode_put(inode);
	inode = spw_inode_get(&old, asked);
	assert(inode->epoch == 1 && read_some(inode) == EINPROGRESS);
	spw_inode_put(inode);

	ns.fail_getattr = EAGAIN;
	asked = spw_asked() - 1;
	old.epoch = 0;
	old.residency = SPW_RESIDENT;
	inode = spw_inode_get(&old, asked);
	assert(read_some(inode) == EAGAIN); /* it is not known which data file it has */
	ns.fail_getattr = 0;
	spw_inode_put(inode);
}

/* ---- truncation ---- */

static void emptying_needs_no_bytes(void)
{
	struct spw_inode *inode = sealed("abcdef");
	struct spw_attr attr;

	assert(spw_evict(inode, VERSION, &answer) == 0);
	assert(spw_truncate(inode, 0) == 0);
	assert(ns.row.epoch == 2 && ns.row.residency == SPW_RESIDENT);
	assert(spw_getattr(inode, &attr) == 0 && attr.size == 0);
	assert(put(inode, "new", 0, true) == 0);
	settle();
	expect(inode, 0, 8, "new", true);
	assert(ns.last.size == 3 && has_epoch(next_ino, 2) && !has_epoch(next_ino, 1));
	spw_inode_put(inode);
}

/* Write the data file of an epoch as the hydrator does: what is not written is a hole. */
static void hydrate(uint64_t epoch, const char *text)
{
	char name[48];
	int fd;

	snprintf(name, sizeof(name), "%02x/%llu.%llu", (unsigned int)(next_ino % 256),
		 (unsigned long long)next_ino, (unsigned long long)epoch);
	fd = openat(spw_files_dir_fd(), name, O_RDWR | O_CREAT, 0600);
	assert(fd >= 0 && ftruncate(fd, (off_t)ns.row.size) == 0);
	assert(pwrite(fd, text, strlen(text), 0) == (ssize_t)strlen(text));
	close(fd);
}

/* A reader has the data file with a part of the bytes open when the file is emptied. */
static void a_reader_follows_to_the_new_data_file(void)
{
	struct spw_inode *inode = sealed("abcdef");

	assert(spw_evict(inode, VERSION, &answer) == 0);
	hydrate(1, "abcdef");
	spw_fd_hold(inode);
	assert(spw_present(inode, 1, 0, 6) == 0);
	expect(inode, 0, 8, "abcdef", true);
	assert(spw_writer_begin_emptied(inode) == 0);
	assert(!has_epoch(next_ino, 1)); /* after the answer of the namespace */
	expect(inode, 0, 8, "", true);
	assert(put(inode, "new", 0, true) == 0);
	expect(inode, 0, 8, "new", true);
	end(inode);
	spw_fd_release(inode);
	expect(inode, 0, 8, "new", true);
	assert(has_epoch(next_ino, 2) && inode->fd_users == 0 && inode->fd == -1);
	spw_inode_put(inode);
}

int __real_spw_fd_get_to_read(struct spw_inode *inode, struct spw_reader *reader);
int __wrap_spw_fd_get_to_read(struct spw_inode *inode, struct spw_reader *reader);

static bool empties; /* the next reader is overtaken by a truncation */

int __wrap_spw_fd_get_to_read(struct spw_inode *inode, struct spw_reader *reader)
{
	int rc = __real_spw_fd_get_to_read(inode, reader);

	if (empties) {
		empties = false;
		assert(spw_writer_begin_emptied(inode) == 0);
	}
	return rc;
}

/* A reader has the old data file, of which nothing has arrived, when the file is emptied. */
static void holes_of_the_old_data_file_are_no_bytes(void)
{
	struct spw_inode *inode;
	uint64_t found;

	for (int i = 0; i < 4; i++) {
		inode = sealed("abcdef");
		assert(spw_evict(inode, VERSION, &answer) == 0);
		if (i % 2 == 0)
			hydrate(1, "");
		empties = true;
		if (i < 2)
			expect(inode, 0, 8, "", true);
		else
			assert(spw_seek(inode, 0, SEEK_HOLE, &found) == EAGAIN);
		assert(!empties);
		end(inode);
		spw_inode_put(inode);
	}
}

static void a_refused_emptying_leaves_the_file_absent(void)
{
	struct spw_inode *inode = sealed("abcdef");

	assert(spw_evict(inode, VERSION, &answer) == 0);
	hydrate(1, "abcdef");
	ns.fail_open = ENOSPC;
	assert(spw_truncate(inode, 0) == ENOSPC);
	assert(read_some(inode) == EINPROGRESS && has_epoch(next_ino, 1));
	ns.fail_open = 0;
	/* What comes for an epoch that is past is deleted, and nothing else. */
	hydrate(2, "abcdef");
	assert(spw_present(inode, 2, 0, 6) == ESTALE && has_epoch(next_ino, 2));
	assert(spw_present(inode, 1, 0, 6) == 0);
	assert(spw_evict(inode, VERSION, &answer) == 0);
	hydrate(1, "abcdef");
	assert(spw_present(inode, 1, 0, 6) == ESTALE);
	assert(!has_epoch(next_ino, 1) && has_epoch(next_ino, 2));
	spw_inode_put(inode);
}

/* An object is made again from an answer that may be older than an eviction, and is evicted before
 * the namespace could be asked. */
static void an_epoch_that_is_not_known_is_asked_for_first(void)
{
	struct spw_inode *inode = sealed("abc");
	struct spw_attr old = row_of(next_ino);
	uint64_t asked = spw_asked();

	assert(spw_evict(inode, VERSION, &answer) == 0);
	hydrate(1, "abc");
	for (int i = 0; i < 2; i++) {
		spw_inode_put(inode);
		ns.fail_getattr = EAGAIN;
		inode = spw_inode_get(&old, asked);
		assert(inode->epoch == 0 && inode->leaving);
		assert(spw_evict(inode, VERSION, &answer) == EAGAIN);
		assert(inode->leaving && ns.row.epoch == 1);
		ns.fail_getattr = 0;
		if (i == 0) { /* the namespace refuses */
			assert(spw_evict(inode, VERSION + 1, &answer) == EBUSY);
			assert(read_some(inode) == EINPROGRESS);
		}
	}
	assert(has_epoch(next_ino, 1));
	assert(spw_evict(inode, VERSION, &answer) == 0);
	assert(ns.row.epoch == 2 && !has_epoch(next_ino, 1));
	spw_inode_put(inode);
}

/* The partial bytes of an absent file are given up: the bytes of the old epoch are not believed. */
static void an_absent_file_is_evicted_again(void)
{
	struct spw_inode *inode = sealed("abc");
	struct spw_wanted wanted;

	assert(spw_evict(inode, VERSION, &answer) == 0);
	assert(spw_present(inode, 1, 0, 3) == 0);
	assert(spw_evict(inode, VERSION, &answer) == 0 && answer.epoch == 2);
	assert(spw_present(inode, 1, 0, 3) == ESTALE);
	assert(read_some(inode) == EINPROGRESS);
	assert(spw_cold_next(99, 0, &wanted) == 0 && wanted.attr.epoch == 2 && wanted.length == 3);
	spw_inode_put(inode);
}

int main(int argc, char **argv)
{
	assert(argc == 2);
	fake_namespace_start(argv[1]);
	assert(spw_cold_start(0) == 0);
	an_open_file_stays();
	a_data_file_that_is_not_that_of_its_row_stays();
	an_evicted_file_has_no_bytes_and_keeps_its_attributes();
	a_writer_during_the_call_never_gets_the_old_data_file();
	an_eviction_without_an_answer_is_asked_for();
	a_refused_eviction_asks_nothing();
	an_old_answer_does_not_bring_the_old_epoch_back();
	emptying_needs_no_bytes();
	a_reader_follows_to_the_new_data_file();
	holes_of_the_old_data_file_are_no_bytes();
	a_refused_emptying_leaves_the_file_absent();
	an_absent_file_is_evicted_again();
	an_epoch_that_is_not_known_is_asked_for_first();
	puts("all passed");
	return 0;
}
