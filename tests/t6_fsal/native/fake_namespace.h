/* The common part of the tests of bytes, inodes and seals, which each of them includes.
 *
 * The namespace is one row in this program. fdatasync and fsync go through wrappers that can fail
 * as a disk does.
 */
#define _GNU_SOURCE /* SEEK_DATA */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "bridge.h"
#include "bytes.h"
#include "inode.h"
#include "seal.h"

#undef NDEBUG

static struct {
	int opens, seals, batches, getattrs, reclaims, fail_open, fail_seal, fail_reclaim;
	int damages, fail_damage;
	int fail_evict, fail_getattr, noted, note_calls;
	bool evicts_all_the_same; /* an eviction that fails was committed */
	int losses, fail_lost;
	bool loses_all_the_same; /* a call of lost() that fails was committed */
	bool is_stored;          /* the bucket has the row's version */
	char reason[128];        /* of the last loss */
	bool evict_saw_file;      /* the data file was there at the last eviction's commit */
	uint64_t damaged;       /* inode whose bytes are lost; 0: none */
	uint64_t never_sealed; /* inode whose seal fails; 0: none */
	struct spw_attr row;
	struct spw_sealed last;
} ns;

static pthread_mutex_t ns_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int fdatasync_error;
static atomic_int fdatasyncs, fsyncs; /* of data files */
static atomic_int directory_syncs;
static atomic_bool fdatasync_held, seal_held;
static atomic_bool damage_held, damage_began;
static atomic_bool evict_held, evict_began, arrived_held, arrived_began;

/* Set what the namespace answers, while other threads ask. */
static inline void ns_set(int *answer, int value)
{
	pthread_mutex_lock(&ns_lock);
	*answer = value;
	pthread_mutex_unlock(&ns_lock);
}

enum { VERSION = 7 }; /* the content version that the bucket has */

/* Return whether an inode has a data file of an epoch. */
static inline bool has_epoch(uint64_t ino, uint64_t epoch)
{
	char name[48];

	snprintf(name, sizeof(name), "%02x/%llu.%llu", (unsigned int)(ino % 256),
		 (unsigned long long)ino, (unsigned long long)epoch);
	return faccessat(spw_files_dir_fd(), name, F_OK, 0) == 0;
}

/* Wait while a test holds a call, for at most most_ms milliseconds. */
static inline void while_held(atomic_bool *held, int most_ms)
{
	for (int waited = 0; atomic_load(held) && waited < most_ms; waited++)
		usleep(1000);
}

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

int __wrap_fdatasync(int fd)
{
	atomic_fetch_add(&fdatasyncs, 1);
	while_held(&fdatasync_held, 60000);
	if (atomic_load(&fdatasync_error) != 0) {
		errno = atomic_load(&fdatasync_error);
		return -1;
	}
	return __real_fdatasync(fd);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
	struct stat st;

	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
		atomic_fetch_add(&directory_syncs, 1);
		return __real_fsync(fd);
	}
	atomic_fetch_add(&fsyncs, 1);
	errno = atomic_load(&fdatasync_error);
	return errno != 0 ? -1 : __real_fsync(fd);
}

static inline int ns_open_write(uint64_t ino, uint32_t flags, struct spw_attr *attr)
{
	int rc = ns.fail_open;

	pthread_mutex_lock(&ns_lock);
	if (rc == 0 && ns.row.residency == SPW_ABSENT) {
		rc = flags & SPW_EMPTIED ? 0 : EAGAIN;
		if (rc == 0) {
			ns.row.residency = SPW_RESIDENT;
			ns.row.epoch++;
			ns.row.size = ns.row.used = 0;
		}
	}
	if (rc == 0) {
		ns.opens++;
		ns.row.ino = ino;
		ns.row.change++;
		*attr = ns.row;
	}
	pthread_mutex_unlock(&ns_lock);
	return rc;
}

static inline void ns_seal(struct spw_seal *seals, uint32_t count)
{
	while_held(&seal_held, 60000);
	pthread_mutex_lock(&ns_lock);
	ns.batches++;
	for (uint32_t i = 0; i < count; i++) {
		const struct spw_sealed *data = &seals[i].data;

		assert(seals[i].status == EIO); /* a seal without an answer has failed */
		seals[i].status = seals[i].ino == ns.never_sealed ? EIO : ns.fail_seal;
		if (seals[i].status != 0)
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

static inline int ns_getattr(uint64_t ino, struct spw_attr *attr)
{
	int rc;

	pthread_mutex_lock(&ns_lock);
	ns.getattrs++;
	*attr = ns.row;
	attr->ino = ino;
	rc = ns.fail_getattr;
	pthread_mutex_unlock(&ns_lock);
	return rc;
}

static inline void ns_reclaim(struct spw_orphan *orphans, uint32_t count)
{
	pthread_mutex_lock(&ns_lock);
	for (uint32_t i = 0; i < count; i++) {
		assert(orphans[i].ino > 0 && orphans[i].epoch == 0);
		assert(orphans[i].status == EIO);
		orphans[i].status = ns.fail_reclaim;
	}
	ns.reclaims += (int)count;
	pthread_mutex_unlock(&ns_lock);
}

static inline int ns_damage(uint64_t ino, const char *reason)
{
	int rc;

	atomic_store(&damage_began, true);
	while_held(&damage_held, 500);
	pthread_mutex_lock(&ns_lock);
	rc = ns.fail_damage;
	if (rc == 0) {
		ns.damages += reason != NULL;
		ns.damaged = reason != NULL ? ino : 0;
	}
	pthread_mutex_unlock(&ns_lock);
	return rc;
}

/* Evicts the row. While `evict_held` the call does not return. */
static inline int ns_evict(uint64_t ino, uint64_t content_version, const struct stat *st,
			   struct spw_attr *attr)
{
	int rc;

	atomic_store(&evict_began, true);
	while_held(&evict_held, 20000);
	pthread_mutex_lock(&ns_lock);
	rc = ns.fail_evict != 0 ? ns.fail_evict : content_version != VERSION ? EBUSY : 0;
	if (rc == 0 && ns.row.residency != SPW_ABSENT && st != NULL &&
	    (uint64_t)st->st_size != ns.row.size)
		rc = EBUSY;
	if (rc == 0 || ns.evicts_all_the_same) {
		ns.row.residency = SPW_ABSENT;
		ns.row.epoch++;
		*attr = ns.row;
		attr->ino = ino;
	}
	ns.evict_saw_file = has_epoch(ino, ns.row.epoch - 1);
	pthread_mutex_unlock(&ns_lock);
	return rc;
}

static inline int ns_arrived(uint64_t ino, uint64_t epoch, uint64_t content_version,
			     struct spw_attr *attr)
{
	int rc = 0;

	atomic_store(&arrived_began, true);
	while_held(&arrived_held, 20000);
	pthread_mutex_lock(&ns_lock);
	if (ns.row.epoch != epoch || content_version != VERSION)
		rc = ESTALE;
	if (rc == 0) {
		ns.row.residency = SPW_RESIDENT;
		*attr = ns.row;
		attr->ino = ino;
	}
	pthread_mutex_unlock(&ns_lock);
	return rc;
}

/* Gives up the data file of the row, or records its damage. */
static inline int ns_lost(uint64_t ino, const struct spw_loss *loss, struct spw_attr *attr)
{
	int rc;

	pthread_mutex_lock(&ns_lock);
	rc = ns.fail_lost;
	if (rc == 0 && loss->content_version != 0 && loss->content_version != VERSION)
		rc = EBUSY;
	if (rc == 0 || ns.loses_all_the_same) {
		ns.losses++;
		snprintf(ns.reason, sizeof(ns.reason), "%s", loss->reason);
		if (!loss->is_not_stored &&
		    (ns.is_stored || ns.row.residency == SPW_ABSENT)) {
			ns.row.residency = SPW_ABSENT;
			ns.row.epoch++;
		} else {
			ns.damages++;
			ns.damaged = ino;
		}
		*attr = ns.row;
		attr->ino = ino;
	}
	pthread_mutex_unlock(&ns_lock);
	return rc;
}

static inline void ns_note_reads(const struct spw_read *reads, uint32_t count)
{
	pthread_mutex_lock(&ns_lock);
	for (uint32_t i = 0; i < count; i++) {
		assert(i == 0 || reads[i].ino > reads[i - 1].ino); /* no inode twice */
		assert(reads[i].read_ns % 60000000000 == 0 && reads[i].read_ns > 0);
	}
	ns.noted += (int)count;
	ns.note_calls++;
	pthread_mutex_unlock(&ns_lock);
}

static atomic_int acknowledge_answer, acknowledge_asked, acknowledge_fails;
static void (*acknowledge_meanwhile)(void); /* what happens while the question is under way */

static inline int ns_acknowledged(uint64_t ino, uint32_t *answer)
{
	(void)ino;
	atomic_fetch_add(&acknowledge_asked, 1);
	if (acknowledge_meanwhile != NULL)
		acknowledge_meanwhile();
	*answer = (uint32_t)atomic_load(&acknowledge_answer);
	return atomic_load(&acknowledge_fails);
}

/* The inodes that were damaged before the start. */
enum { DAMAGED_FIRST = 50, DAMAGED_COUNT = 40 };

static inline int ns_damages(uint64_t after, uint64_t *inos, uint32_t most, uint32_t *count)
{
	uint64_t next = after < DAMAGED_FIRST ? DAMAGED_FIRST : after + 1;

	for (*count = 0; *count < most && next < DAMAGED_FIRST + DAMAGED_COUNT; next++)
		inos[(*count)++] = next;
	return 0;
}

static uint64_t next_ino = 100;

/* Return the attributes that a look-up answers now. */
static inline struct spw_attr row_of(uint64_t ino)
{
	struct spw_attr attr;

	pthread_mutex_lock(&ns_lock);
	attr = ns.row;
	pthread_mutex_unlock(&ns_lock);
	attr.ino = ino;
	return attr;
}

static inline struct spw_inode *get(uint64_t ino)
{
	uint64_t asked = spw_asked();
	struct spw_attr attr = row_of(ino);

	return spw_inode_get(&attr, asked);
}

/* Wait until each inode without a writer is sealed. */
static inline void settle(void)
{
	assert(spw_queue_flush(30));
}

/* End a writer, and wait for the seal that follows. */
static inline void end(struct spw_inode *inode)
{
	spw_writer_end(inode);
	settle();
}

/* Return a new inode with a new row. */
static inline struct spw_inode *fresh(void)
{
	settle();
	memset(&ns, 0, sizeof(ns));
	ns.row.kind = SPW_REGULAR;
	ns.row.nlink = 1;
	ns.row.residency = SPW_RESIDENT;
	ns.row.change = 1;
	atomic_store(&fdatasync_error, 0);
	atomic_store(&directory_syncs, 0);
	return get(++next_ino);
}

static inline int put(struct spw_inode *inode, const char *text, uint64_t offset, bool stable)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text) };
	size_t amount;
	int rc = spw_write(inode, &iov, 1, offset, stable, &amount);

	assert(rc != 0 || amount == strlen(text));
	return rc;
}

static inline void expect(struct spw_inode *inode, uint64_t offset, size_t wanted, const char *text,
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

/* Return whether an inode has a data file, and its stat. */
static inline bool data_file(uint64_t ino, struct stat *st)
{
	char name[32];

	snprintf(name, sizeof(name), "%02x/%llu.0", (unsigned int)(ino % 256),
		 (unsigned long long)ino);
	return fstatat(spw_files_dir_fd(), name, st, 0) == 0;
}

static inline bool has_bytes(uint64_t ino)
{
	struct stat st;

	return data_file(ino, &st);
}

static inline void make_stamp(void)
{
	int fd = openat(spw_files_dir_fd(), "stamp.json", O_WRONLY | O_CREAT, 0600);

	assert(fd >= 0 && write(fd, "{}\n", 3) == 3);
	close(fd);
}

static void fake_namespace_start(const char *files_dir)
{
	static const struct spw_inode_ops ops = {
		.open_write = ns_open_write,
		.seal = ns_seal,
		.getattr = ns_getattr,
		.reclaim = ns_reclaim,
		.damage = ns_damage,
		.damages = ns_damages,
		.evict = ns_evict,
		.arrived = ns_arrived,
		.lost = ns_lost,
		.note_reads = ns_note_reads,
		.acknowledged = ns_acknowledged,
	};

	spw_namespace_start(&ops);
	spw_inodes_start();
	assert(spw_files_start("/nonexistent") == ENOENT);
	assert(spw_files_start(files_dir) == 0);
	make_stamp();
	assert(spw_damage_start() == 0);
	assert(spw_sealer_start() == 0);
}
