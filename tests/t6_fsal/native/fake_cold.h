/* The common part of the tests of absent files: the file, and the hydrator over the control
 * socket. */
#include "fake_namespace.h"

#include "cold.h"

enum { G = SPW_GRANULE_BYTES };

static uint64_t session = 1;

static inline int ask(uint32_t op, struct spw_inode *inode, uint64_t ino2, uint64_t change, uint64_t offset,
	       uint64_t length)
{
	struct spw_control_request asked = {
		.request = { .ino = inode->ino, .ino2 = ino2, .cookie = change },
		.offset = offset, .length = length,
	};
	struct spw_control_reply reply = { 0 };

	return spw_cold_serve(op, &asked, &reply);
}

static inline int present(struct spw_inode *inode, uint64_t offset, uint64_t length)
{
	return ask(SPW_CONTROL_PRESENT, inode, ns.row.epoch, 0, offset, length);
}

static inline int arrived(struct spw_inode *inode, uint64_t epoch, uint64_t content_version)
{
	return ask(SPW_CONTROL_ARRIVED, inode, epoch, content_version, session, 0);
}

/* Ask for a wanted range, as a hydrator of a session. */
static inline int next_range(uint64_t of_session, struct spw_control_reply *reply)
{
	struct spw_control_request asked = { .request = { .ino = of_session } };

	memset(reply, 0, sizeof(*reply));
	return spw_cold_serve(SPW_CONTROL_WANTED, &asked, reply);
}

/* Expects the next range that the hydrator of this session is handed. length 0: none. */
static inline void hand_out(uint64_t offset, uint64_t length)
{
	struct spw_control_reply reply;

	assert(next_range(session, &reply) == 0);
	assert(reply.length == length && (length == 0 || reply.offset == offset));
	assert(length == 0 || (reply.attr.epoch == ns.row.epoch && reply.attr.size == ns.row.size));
	assert((length == 0) == (reply.attr.ino == 0));
}

/* Return an absent file of which nothing is here. */
static inline struct spw_inode *absent(uint64_t size)
{
	spw_inode_put(fresh());
	ns.row.residency = SPW_ABSENT;
	ns.row.epoch = 3;
	ns.row.size = size;
	session++;
	return get(++next_ino);
}

/* Write to the data file as the hydrator does. */
static inline void hydrate(struct spw_inode *inode, uint64_t offset, const char *text)
{
	char name[48];
	int fd;

	snprintf(name, sizeof(name), "%02x/%llu.%llu", (unsigned int)(inode->ino % 256),
		 (unsigned long long)inode->ino, (unsigned long long)ns.row.epoch);
	fd = openat(spw_files_dir_fd(), name, O_RDWR | O_CREAT, 0600);
	assert(fd >= 0 && ftruncate(fd, (off_t)ns.row.size) == 0);
	assert(pwrite(fd, text, strlen(text), (off_t)offset) == (ssize_t)strlen(text));
	close(fd);
}

static inline int read_at(struct spw_inode *inode, uint64_t offset, size_t length)
{
	char buffer[64];
	struct iovec iov = { .iov_base = buffer, .iov_len = length };
	size_t amount;
	bool eof;

	return spw_read(inode, &iov, 1, offset, &amount, &eof);
}
