/* The one object of each inode. It has the attributes, and for a regular file the descriptor, the
 * writers and what is on stable storage. It uses neither Ganesha nor Python.
 *
 * An inode object exists while a handle of Ganesha's names it. All handles of one inode number
 * share one object. Names, rows and versions belong to the namespace, and `struct spw_inode_ops`
 * reaches them. Only this process changes what clients see of an inode, so the object keeps the
 * attributes of the last answer.
 *
 * Locks, in this order: a bucket of the table; `meta` for writers, the attributes and the calls
 * that open and seal; `sync_lock` for the thread that syncs; `fd_lock` for the descriptor and the
 * shares, so that reads never wait for the namespace; the lock of cold.c. Only the sealer holds the
 * meta of two inodes.
 */
#ifndef SPILLWAY_INODE_H
#define SPILLWAY_INODE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "bridge.h"

/* ---- inode.c ---- */

/* Room for the protocol side's share counters (struct fsal_share). */
struct spw_shares {
	unsigned int counters[8];
};

struct spw_cold;

struct spw_inode {
	struct spw_inode *next; /* in its bucket of the table */
	uint64_t ino;
	uint64_t epoch; /* changes under `meta` and `fd_lock`, with `is_absent` and `leaving` */
	uint64_t generation;
	unsigned int handles; /* under the table's lock */
	uint64_t born;        /* answers to reads that began earlier are not believed */

	pthread_mutex_t fd_lock;
	int fd;                /* -1: closed */
	uint64_t fd_epoch;     /* of the data file that `fd` is of */
	bool fd_reads_only;    /* the disk was mounted read-only when it was opened */
	unsigned int fd_users; /* open states and running operations */
	bool may_create;       /* the row has no bytes, and the data file was not opened since */
	bool leaving;          /* the epoch changes or is not known: no descriptor is given */
	struct spw_shares shares;

	pthread_mutex_t meta;
	unsigned int writers; /* open states that may write, and running changes */
	bool write_open;      /* the namespace has it open for writing: fstat is the truth */
	bool fd_kept;         /* `write_open` holds the descriptor */
	bool orphan;          /* no name is left: reclaim it with the last handle */
	bool gone;            /* its row is reclaimed: only the data file is left */
	atomic_uint_fast64_t refused_ms; /* of its first open without a name; 0: none */
	bool attr_known;      /* `attr` is the namespace's row */
	uint64_t change_seen; /* an answer with a smaller `change` is old */
	struct spw_attr attr;

	struct spw_inode *next_unsealed; /* under the queue's lock, with `unsealed` */
	bool unsealed;                   /* queued to be sealed; the queue has a handle on it */
	uint64_t again_ms;               /* time of the next try, after a failed seal */
	uint32_t pause_ms;

	pthread_mutex_t sync_lock;
	pthread_cond_t sync_done;
	bool syncing;              /* one thread syncs for all threads that wait */
	atomic_bool entry_durable; /* the data file's directory entry was fsynced */

	atomic_uint_fast64_t writes; /* changes of the bytes; never reset: a slow sync cannot lie */
	atomic_uint_fast64_t synced; /* the number of these changes on stable storage */
	uint64_t sealed;             /* the number of these that the namespace knows; under meta */
	uint64_t row_size;           /* size in its row when it was opened for writing */
	/* Bytes that the data file has at least: fewer means lost bytes. 0 while the file is open
	 * for writing; UINT64_MAX while the row is not known. Changes under `meta`. */
	atomic_uint_fast64_t least_bytes;
	uint64_t row_used;           /* allocated bytes in its row; while open for writing */
	atomic_uint_fast64_t grown;  /* bytes on the disk beyond `row_used` */
	uint64_t top;                /* directory below the root that it is in; 0: not asked yet */
	atomic_int error;            /* set for good when bytes were lost (0: none) */
	atomic_bool is_noted;        /* the namespace has a row for the error */

	atomic_bool is_absent; /* its bytes are in the bucket; not set while `fd` has users */
	struct spw_cold *cold; /* its granules, while it is absent; under the lock of cold.c */
	atomic_uint_least32_t read_minute; /* of the last read that was noted */
	uint64_t lost_ms; /* when its data file was last given up; 0: never; under `meta` */
};

/* Prepares the table. Call it before any other function of this header. */
void spw_inodes_start(void);

/* Returns the present time, in counts of events. Call it before a call of the namespace whose
 * answer has attributes: it tells later how old they are. */
uint64_t spw_asked(void);

/* Returns the inode object of an answer, with one more handle on it. It is made if there is none.
 * The attributes may be older than what is known here: clients get those of spw_getattr().
 * asked: result of spw_asked(). */
struct spw_inode *spw_inode_get(const struct spw_attr *attr, uint64_t asked);

/* Returns the object of an inode, with one more handle on it, or NULL if there is none. */
struct spw_inode *spw_inode_find(uint64_t ino);

/* The generation of an inode that has an object, or 0. */
uint64_t spw_inode_generation(uint64_t ino);

/* Fills the attributes of an inode as its row has them, if there is an object for it that knows the
 * row. They are for spw_inode_get(): attributes of the data file would be kept as a row there, its
 * writes would be counted again, and the answer to the seal would seem old. */
bool spw_inode_known(uint64_t ino, struct spw_attr *attr);

/* Drops one handle. The last one reclaims an orphan. */
void spw_inode_put(struct spw_inode *inode);

/* Fills the attributes as clients must see them, from the data file where that is the truth.
 * Returns 0 or an errno. */
int spw_getattr(struct spw_inode *inode, struct spw_attr *attr);

/* Keeps an inode's new attributes from the answer to a change. ino 0: the answer has none. */
void spw_changed(const struct spw_attr *attr);

/* Forgets what is known of an inode, because a change of it may or may not have happened. */
void spw_inode_invalidate(uint64_t ino);

/* Returns whether the mode has suid or an executable file's sgid, or is not known here. */
bool spw_may_be_privileged(struct spw_inode *inode);

/* Returns whether an inode is known to have no name any more. */
bool spw_is_nameless(struct spw_inode *inode);

/* Notes that an inode lost a name. A file without a name is reclaimed when nothing has it open. */
void spw_removed(const struct spw_removed *removed);

/* Notes that the row of an orphan is deleted. Its bytes are deleted once nothing has it open. */
void spw_reclaimed(uint64_t ino, uint64_t epoch);

/* Adds one handle to an inode that has one. */
void spw_inode_hold(struct spw_inode *inode);

/* Keeps attributes that the namespace answered, unless newer ones are known. Only inode.c, writer.c
 * and seal.c call this. `meta` is held. */
void spw_learn_locked(struct spw_inode *inode, const struct spw_attr *attr);

/* Sets `least_bytes` by the row and by whether the file is open for writing. Only writer.c and seal.c
 * call this, after they changed `write_open`. `meta` is held. */
void spw_expect_bytes_locked(struct spw_inode *inode);

/* Fills the attributes of the row, and asks for them if they are not known. `meta` is held. Returns
 * 0 or an errno. */
int spw_attr_locked(struct spw_inode *inode, struct spw_attr *attr);

/* Takes epoch and residency from the answer to a call that ran under `meta`, which is held. Other
 * answers may be older than the last eviction without showing it. */
void spw_place_locked(struct spw_inode *inode, const struct spw_attr *attr);

/* ---- namespace.c ---- */

/* The functions of the namespace that bytes need. main.c gives them at the start, so that their
 * callers need neither Ganesha nor Python. */

/* What was found of a file whose bytes are not those of its row. */
struct spw_loss {
	const char *reason;       /* one line for a person */
	uint64_t content_version; /* of which it was found; 0: of the present one */
	bool is_not_stored;       /* the bucket does not have it either, whatever its rows say */
};

/* Each returns 0 or an errno. */
struct spw_inode_ops {
	/* flags: of spw_request, or 0. */
	int (*open_write)(uint64_t ino, uint32_t flags, struct spw_attr *attr);
	/* Each seal has a status of its own, preset to EIO. */
	void (*seal)(struct spw_seal *seals, uint32_t count);
	int (*getattr)(uint64_t ino, struct spw_attr *attr);
	void (*reclaim)(struct spw_orphan *orphans, uint32_t count);
	/* Records durably that bytes of the file are lost. reason NULL: the file is whole again. */
	int (*damage)(uint64_t ino, const char *reason);
	/* Gives the next damaged inodes, in ascending order. */
	int (*damages)(uint64_t after, uint64_t *inos, uint32_t most, uint32_t *count);
	/* st: the data file, which nothing can write meanwhile, or NULL if there is none. */
	int (*evict)(uint64_t ino, uint64_t content_version, const struct stat *st,
		     struct spw_attr *attr);
	int (*arrived)(uint64_t ino, uint64_t epoch, uint64_t content_version,
		       struct spw_attr *attr);
	/* Says that the data file lacks bytes of the row, or cannot be read. The file becomes absent
	 * if the bucket has it, which *attr tells; if not, the reason is recorded as its damage. */
	int (*lost)(uint64_t ino, const struct spw_loss *loss, struct spw_attr *attr);
	/* Records when files were read. No inode is given twice. */
	void (*note_reads)(const struct spw_read *reads, uint32_t count);
	/* Says whether the bucket has the file as it is (enum spw_ack). */
	int (*acknowledged)(uint64_t ino, uint32_t *answer);
};

/* Sets the namespace to ask, before any other call; keeps a copy of `given`. */
void spw_namespace_start(const struct spw_inode_ops *given);

/* Returns the namespace that was given at the start. */
const struct spw_inode_ops *spw_namespace(void);

#endif
