/* Inodes: attributes, and of regular files the bytes: data file, descriptor, writers. No Ganesha,
 * no Python.
 *
 * An inode object exists while a handle of Ganesha's names it, one per inode number however many
 * handles there are. Names, rows and versions belong to the namespace and are reached through
 * `struct spw_inode_ops`. This process is the only one that changes what clients see of an inode, so
 * the attributes it was last told are kept here.
 *
 * Locks, in this order: a bucket of the table; `meta`: writers, the attributes and the calls that
 * open and seal; `sync_lock`: who syncs; `fd_lock`: the descriptor and the shares, so that reads
 * never wait for the namespace. Only the sealer holds the meta of two inodes.
 */
#ifndef SPILLWAY_FILES_H
#define SPILLWAY_FILES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "bridge.h"
#include "space.h"

/* The namespace, as far as bytes need it. Each returns 0 or an errno. */
struct spw_inode_ops {
	int (*open_write)(uint64_t ino, struct spw_attr *attr);
	/* Each with a status of its own, preset to EIO. */
	void (*seal)(struct spw_seal *seals, uint32_t count);
	int (*getattr)(uint64_t ino, struct spw_attr *attr);
	void (*reclaim)(struct spw_orphan *orphans, uint32_t count);
	/* Bytes of the file are lost, durably; reason NULL: it is whole again. */
	int (*damage)(uint64_t ino, const char *reason);
	/* The next inodes of which that is known, in ascending order. */
	int (*damages)(uint64_t after, uint64_t *inos, uint32_t most, uint32_t *count);
};

/* Room for the protocol side's share counters (struct fsal_share). */
struct spw_shares {
	unsigned int counters[8];
};

struct spw_inode {
	struct spw_inode *next; /* in its bucket of the table */
	uint64_t ino;
	uint64_t generation;
	uint64_t epoch;
	unsigned int handles; /* under the table's lock */
	uint64_t born;        /* answers of reads that began before it are not believed */

	pthread_mutex_t fd_lock;
	int fd;                /* -1: closed */
	unsigned int fd_users; /* open states and running operations */
	bool may_create;       /* the row has no bytes, and the data file was not opened since */
	struct spw_shares shares;

	pthread_mutex_t meta;
	unsigned int writers; /* open states that may write, and running changes */
	bool write_open;      /* the namespace has it open for writing: fstat is the truth */
	bool fd_kept;         /* `write_open` holds the descriptor */
	bool orphan;          /* no name is left: reclaim it with the last handle */
	bool gone;            /* its row is reclaimed already: only the data file is left */
	bool attr_known;      /* `attr` is the namespace's row */
	uint64_t change_seen; /* an answer with a smaller `change` is old */
	struct spw_attr attr;

	struct spw_inode *next_unsealed; /* under the queue's lock, with `unsealed` */
	bool unsealed;                   /* queued to be sealed; the queue has a handle on it */
	uint64_t again_ms;               /* it could not be sealed, and is tried again then */
	uint32_t pause_ms;

	pthread_mutex_t sync_lock;
	pthread_cond_t sync_done;
	bool syncing;              /* one thread syncs for all that wait */
	atomic_bool entry_durable; /* the data file's directory entry was fsynced */

	atomic_uint_fast64_t writes; /* changes of the bytes; never reset, so a slow sync cannot lie */
	atomic_uint_fast64_t synced; /* of which so many are on stable storage */
	uint64_t sealed;             /* of which so many the namespace knows; under meta */
	uint64_t row_size;           /* of its row when it was opened for writing */
	uint64_t row_used;           /* bytes on the disk that its row has; while open for writing */
	atomic_uint_fast64_t grown;  /* bytes it takes more than that */
	uint64_t top;                /* directory below the root that it is in; 0: not asked yet */
	atomic_int error;            /* an fdatasync failed: stays failed (0: none) */
	atomic_bool is_noted;        /* and the namespace has a row of it */
};

/* ---- namespace.c ---- */

/* Before anything else: the namespace to ask; kept. */
void spw_namespace_start(const struct spw_inode_ops *given);

/* The namespace, as it was given at the start. */
const struct spw_inode_ops *spw_namespace(void);

/* ---- inode.c: the table, attributes ---- */

/* Before any other function of it. */
void spw_inodes_start(void);

/* When a call of the namespace begins whose answer has attributes: says later how old they are. */
uint64_t spw_asked(void);

/* The inode object of an answer, with one more handle on it; made if there is none. The answer is
 * corrected where this side knows better. asked: of spw_asked(). */
struct spw_inode *spw_inode_get(struct spw_attr *attr, uint64_t asked);

/* The attributes of an inode, if there is an object for it that knows them. */
bool spw_inode_known(uint64_t ino, struct spw_attr *attr);

/* The generation of an inode that has an object, or 0. */
uint64_t spw_inode_generation(uint64_t ino);

/* One handle less. The last one reclaims an orphan. */
void spw_inode_put(struct spw_inode *inode);

/* The attributes as clients must see them, from the data file where that is the truth. */
int spw_getattr(struct spw_inode *inode, struct spw_attr *attr);

/* A change was answered with an inode's new attributes. ino 0: it has none. */
void spw_changed(const struct spw_attr *attr);

/* A change may or may not have happened: what is known of the inode is forgotten. */
void spw_doubted(uint64_t ino);

/* Whether the mode, as far as it is known here, has suid or an executable file's sgid. */
bool spw_is_privileged(struct spw_inode *inode);

/* An inode lost a name. A file without any left is reclaimed when nothing has it open. */
void spw_removed(const struct spw_removed *removed);

/* The row of an inode without a name is gone: so are its bytes, as soon as nothing has it open. */
void spw_reclaimed(uint64_t ino, uint64_t epoch);

/* ---- writer.c ---- */

/* A writer comes: the first one tells the namespace, durably, before it returns 0.
 * created: the namespace made the file open for writing, with these attributes; not believed when
 * something newer was seen of it; when they are believed, see spw_expect_no_file. */
int spw_writer_begin(struct spw_inode *inode, const struct spw_attr *created);

/* The namespace made the file, not open for writing, with these attributes: see spw_expect_no_file.
 * Nothing is done when something newer was seen of it. Returns 0 or an errno. */
int spw_made_closed(struct spw_inode *inode, const struct spw_attr *created);

/* A writer goes: after the last one the bytes are put on stable storage and the file is sealed,
 * later, by a thread that seals all that wait in one transaction. No client was promised the seal: a
 * crash before it makes the next start seal. */
void spw_writer_end(struct spw_inode *inode);

/* Keeps a file that is open for writing from being sealed until spw_writer_end. Whether it is open:
 * nothing is kept otherwise. */
bool spw_keep_open(struct spw_inode *inode);

/* A client has set the mtime: sets the data file's, on stable storage, if the file is open for writing
 * (fstat is the truth then). A seal that began before would put the old one back: see spw_keep_open.
 * Returns 0 or an errno. */
int spw_touch(struct spw_inode *inode, int64_t mtime_ns);

/* ---- queue.c: what waits for the sealer ---- */

#define SPW_QUEUE_BATCH 64u

/* Before any other function of it. */
void spw_queue_start(void);

/* Queues a file whose last writer went. True: the queue has taken over a handle of the caller's;
 * false: it was queued already. */
bool spw_queue_add(struct spw_inode *inode);

/* Queues a file that could not be sealed, for a time that doubles with each try; as spw_queue_add. */
bool spw_queue_again(struct spw_inode *inode);

/* A file was sealed: its next failure waits for the shortest time. */
void spw_queue_settled(struct spw_inode *inode);

/* Queues an inode that lost its last name and that nothing has open. */
void spw_queue_orphan(uint64_t ino, uint64_t epoch);

/* Waits until there is something to do, and takes it: files, each with a handle, and orphans, of each
 * at most SPW_QUEUE_BATCH. Returns the number of files. */
unsigned int spw_queue_take(struct spw_inode **inodes, struct spw_orphan *orphans,
			    unsigned int *orphan_count);

/* What was taken last is done. */
void spw_queue_done(void);

/* Waits until nothing is queued or taken, but not for longer. Returns whether nothing is. */
bool spw_queue_flush(unsigned int seconds);

/* ---- seal.c ---- */

/* Starts the thread that seals and reclaims. Returns 0 or an errno. */
int spw_sealer_start(void);

/* ---- damage.c: files whose bytes are known to be lost ---- */

/* Asks the namespace what it knows of earlier starts. Returns 0 or an errno. */
int spw_damage_start(void);

/* Gives a new inode object the error that is known of its inode. */
void spw_damage_recall(struct spw_inode *inode);

/* Tells the namespace that bytes are lost, and every later object of the inode. When the namespace
 * cannot be told, the sealer tries again after the next writer. */
void spw_damage_note(struct spw_inode *inode, const char *reason);

/* None of the lost bytes is left. Returns 0 or an errno. */
int spw_damage_clear(struct spw_inode *inode);

/* For inode.c, writer.c and seal.c alone; `meta` is held. */
void spw_learn_locked(struct spw_inode *inode, const struct spw_attr *attr);

/* One more handle on an inode that has one. */
void spw_inode_hold(struct spw_inode *inode);

/* ---- fd.c: data files and their descriptors ---- */

/* Opens the data directory, which has 256 shard directories. Returns 0 or an errno. */
int spw_files_start(const char *dir);

/* Keeps the descriptor open, once it is, until spw_fd_release: for an open state. */
void spw_fd_hold(struct spw_inode *inode);
void spw_fd_release(struct spw_inode *inode);

/* What is done where there is no data file. */
enum spw_absent {
	SPW_ABSENT_FAILS,    /* ENOENT */
	SPW_ABSENT_IF_NEW,   /* it is made, or EIO when it should have bytes */
	SPW_ABSENT_IS_EMPTY, /* it is made: the old bytes are not wanted */
};

/* A descriptor to use until spw_fd_release. Returns 0 or an errno. */
int spw_fd_get(struct spw_inode *inode, enum spw_absent absent, int *fd);

/* Whether a data file may be made: its row says that it is empty. */
void spw_fd_expect(struct spw_inode *inode, bool is_empty);

/* For writer.c alone; `meta` is held, no client has written to the inode. A new inode has no data file.
 * One that is there was another inode's, whose number a restored database gave out again: it is moved
 * to lost+found. Returns 0 or EIO. */
int spw_expect_no_file(const struct spw_inode *inode);

/* Deletes the data file, if there is one, of an inode whose row is gone. */
void spw_unlink(uint64_t ino, uint64_t epoch);

/* Puts the directory entry of a new data file on stable storage, once. Returns 0 or an errno. */
int spw_fd_sync_entry(struct spw_inode *inode);

/* Descriptor of the data directory, for statfs. */
int spw_files_dir_fd(void);

/* ---- sync.c: stable storage ---- */

/* Puts all changes that were answered so far on stable storage; threads that wait at the same time
 * share one fdatasync. A failure is final: the kernel
 * drops the pages it could not write, so a later success would be a lie. Returns 0 or an errno. */
int spw_sync_fd(struct spw_inode *inode, int fd);

/* Puts the file's times on stable storage, which fdatasync leaves out. A failure is as final: the
 * kernel tells of lost bytes once, and this may be when. Returns 0 or an errno. */
int spw_sync_times(struct spw_inode *inode, int fd);

/* Changes when accepted bytes are known to be lost: part of the NFS write verifier. */
uint32_t spw_lost_count(void);

/* ---- bytes.c ---- */

/* Each returns 0 or an errno. Amounts in bytes. */
int spw_read(struct spw_inode *inode, const struct iovec *iov, int count, uint64_t offset,
	     size_t *amount, bool *eof);
int spw_write(struct spw_inode *inode, const struct iovec *iov, int count, uint64_t offset,
	      bool stable, size_t *amount);
int spw_truncate(struct spw_inode *inode, uint64_t size);
int spw_commit(struct spw_inode *inode);
int spw_seek(struct spw_inode *inode, uint64_t offset, int whence, uint64_t *found);
int spw_allocate(struct spw_inode *inode, uint64_t offset, uint64_t length, bool allocate);

/* Nanoseconds since 1970; what 64 bits cannot hold (before 1677, after 2262) is cut to what they can. */
static inline int64_t spw_ns(const struct timespec *time)
{
	int64_t ns;

	if (__builtin_mul_overflow((int64_t)time->tv_sec, 1000000000LL, &ns) ||
	    __builtin_add_overflow(ns, (int64_t)time->tv_nsec, &ns))
		return time->tv_sec < 0 ? INT64_MIN : INT64_MAX;
	return ns;
}

#endif
