/* The one object of each inode: its attributes, and of a regular file the descriptor, the writers
 * and what is on stable storage. No Ganesha, no Python.
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
#ifndef SPILLWAY_INODE_H
#define SPILLWAY_INODE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "bridge.h"

/* Room for the protocol side's share counters (struct fsal_share). */
struct spw_shares {
	unsigned int counters[8];
};

struct spw_inode {
	struct spw_inode *next; /* in its bucket of the table */
	uint64_t ino;
	uint64_t epoch;
	uint64_t generation;
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

/* Before any other function of it. */
void spw_inodes_start(void);

/* When a call of the namespace begins whose answer has attributes: says later how old they are. */
uint64_t spw_asked(void);

/* The inode object of an answer, with one more handle on it; made if there is none. The answer is
 * corrected where this side knows better. asked: of spw_asked(). */
struct spw_inode *spw_inode_get(struct spw_attr *attr, uint64_t asked);

/* The generation of an inode that has an object, or 0. */
uint64_t spw_inode_generation(uint64_t ino);

/* The attributes of an inode, if there is an object for it that knows them. */
bool spw_inode_known(uint64_t ino, struct spw_attr *attr);

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

/* One more handle on an inode that has one. */
void spw_inode_hold(struct spw_inode *inode);

/* The namespace answered with these attributes; ones that are older than what is known change
 * nothing. For inode.c, writer.c and seal.c alone; `meta` is held. */
void spw_learn_locked(struct spw_inode *inode, const struct spw_attr *attr);

#endif
