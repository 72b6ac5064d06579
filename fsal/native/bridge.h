/* The boundary between Ganesha's threads (C) and the namespace (Python): plain C types only.
 *
 * fsal/bridge.py mirrors these structures with ctypes. A test compares sizes and offsets, and every
 * load compares the sizes. Python fills `struct spw_table` once. A call passes requests and a reply
 * for each.
 *
 * Rules: The status is in the reply; C presets it to EIO, and named_in to 0, and Python writes the
 * status last. Callbacks return void, because a ctypes callback with an int result returns garbage
 * when an exception escapes. No pointer outlives its call. C owns every buffer.
 */
#ifndef SPILLWAY_BRIDGE_H
#define SPILLWAY_BRIDGE_H

#include <stdint.h>

#define SPW_ABI 15

/* Kinds of inodes: the numbers of Ganesha's object_file_type_t. */
enum spw_kind { SPW_REGULAR = 1, SPW_SYMLINK = 4, SPW_DIRECTORY = 7 };

/* The directory that only the gateway finds (gateway/db/models.py). */
#define SPW_TRASH_INO 4u

/* The place of a file's bytes (gateway/common/types.py). */
enum spw_residency { SPW_ABSENT = 0, SPW_RESIDENT = 2 };

enum spw_op {
	/* reads */
	SPW_LOOKUP,        /* ino, name                        -> attr */
	SPW_LOOKUP_PARENT, /* ino                              -> attr */
	SPW_GETATTR,       /* ino                              -> attr */
	SPW_READDIR,       /* ino, cookie, entries, buffer     -> count, eof */
	SPW_READLINK,      /* ino, buffer                      -> length */
	SPW_VERIFIER,      /* ino                              -> verifier, count = 1 if any */
	SPW_GETXATTR,      /* ino, name, buffer                -> length (ERANGE: too long) */
	SPW_LISTXATTR,     /* ino, buffer                      -> length of "user.a\0user.b\0" */
	SPW_DAMAGES,       /* cookie = after ino, buffer       -> count, numbers in the buffer */
	SPW_ACKNOWLEDGED,  /* ino                              -> count = enum spw_ack */
	SPW_NOTE_OPEN,     /* ino, flags: a client opened it, if table.notes_opens */
	/* changes of the namespace, SPW_CREATE to SPW_NOTE_READS */
	SPW_CREATE,        /* ino, name, set, verifier, flags  -> attr, parent */
	SPW_MKDIR,         /* ino, name, set                   -> attr, parent */
	SPW_SYMLINK_OP,    /* ino, name, name2 = target, set   -> attr, parent */
	SPW_MKNOD,         /* ino, name, kind, rdev, set       -> attr, parent */
	SPW_LINK,          /* ino2 = inode, ino, name          -> attr, parent */
	SPW_RENAME,        /* ino, name, ino2, name2, cookie = 0 or number; ino3: the only inode to
			    * move, 0: any                     -> attr, removed, parent, parent2 */
	SPW_REMOVE,        /* ino, name; ino2, cookie: the only inode and change to remove
			    *                                  -> removed, parent */
	SPW_SETATTR,       /* ino, set, flags                  -> attr */
	SPW_OPEN_WRITE,    /* ino, flags                       -> attr (EAGAIN: its bytes are absent) */
	SPW_SEAL,          /* seals                            -> attr and status in each */
	SPW_RECLAIM,       /* orphans                          -> status in each */
	SPW_DAMAGE,        /* ino, name = reason; no name: the file is whole again */
	SPW_SETXATTR,      /* ino, name, name2 = value, kind   -> attr */
	SPW_REMOVEXATTR,   /* ino, name                        -> attr */
	SPW_EVICT,         /* ino, cookie = content version; of its data file: ino2 = size, ino3 = mtime
			    * in ns, or flags           -> attr (EBUSY: not clean) */
	SPW_ARRIVED,       /* ino, ino2 = epoch, cookie = content version -> attr */
	SPW_LOST,          /* ino, cookie = content version or 0, flags, name = reason -> attr: absent
			    * if the bucket has the file; if not, the reason is recorded as its damage
			    * (EBUSY: it has another version) */
	SPW_NOTE_READS,    /* buffer of spw_read, entries_max of them */
	/* calls that neither wait in a queue nor keep others waiting */
	SPW_SPACE,         /* space                            -> dirty_bytes */
	SPW_FLOW,          /* ino, name = client's address     -> attr.ino = top, count = weight */
	SPW_INSTALL,       /* ino, name, name2 = prepared file, set -> attr, removed, parent */
	SPW_SHARED,        /* name = that clients give themselves, name2 = two of their addresses */
	SPW_OP_COUNT
};

/* What a CLOSE promises: that the bytes are here, or in the bucket too, where they may be, not be
 * yet, or never be (gateway/namespace/content.py). */
enum spw_ack { SPW_ACK_LOCAL = 0, SPW_ACK_STORED = 1, SPW_ACK_WAITS = 2, SPW_ACK_FAILED = 3 };

/* spw_space.level */
enum spw_level { SPW_ROOM = 0, SPW_SLOW = 1, SPW_FULL = 2 };

/* spw_request.flags */
#define SPW_HAS_VERIFIER 1u
#define SPW_FOR_WRITING 2u
#define SPW_EMPTIED 4u /* the writer empties the file: no byte of it is needed */
#define SPW_FOR_GATEWAY 8u /* the gateway asks for itself: it may change what is reserved */
#define SPW_WITHOUT_PRIVILEGES 16u /* take suid and sgid from the mode */
#define SPW_NO_DATA_FILE 32u       /* the file to evict has none */
#define SPW_NOT_STORED 64u         /* the bucket lacks the file that lost bytes, whatever the rows say */

/* spw_setattr.mask */
#define SPW_SET_MODE 1u
#define SPW_SET_UID 2u
#define SPW_SET_GID 4u
#define SPW_SET_ATIME 8u
#define SPW_SET_MTIME 16u

#define SPW_COMMIT_SIZES 8u
#define SPW_COMMIT_DURATIONS 26u

/* Attributes of an inode; times in nanoseconds since 1970. */
struct spw_attr {
	uint64_t ino;
	uint64_t generation;
	uint64_t size;   /* bytes */
	uint64_t used;   /* allocated bytes */
	uint64_t change; /* grows with every change */
	uint64_t rdev;   /* major << 32 | minor */
	uint64_t epoch;  /* of the local data file */
	int64_t atime_ns;
	int64_t mtime_ns;
	int64_t ctime_ns;
	int64_t btime_ns;
	uint32_t kind;
	uint32_t mode; /* 07777 */
	uint32_t uid;
	uint32_t gid;
	uint32_t nlink;
	uint32_t residency; /* enum spw_residency */
	uint32_t reserved;  /* 1: only the gateway changes it */
	uint32_t pad;
};

struct spw_setattr {
	int64_t atime_ns;
	int64_t mtime_ns;
	uint32_t mask;
	uint32_t mode;
	uint32_t uid;
	uint32_t gid;
};

/* The facts of a data file when its last writer closed. */
struct spw_sealed {
	uint64_t size;
	uint64_t used;
	int64_t mtime_ns;
	uint64_t writes;
};

struct spw_seal {
	uint64_t ino;
	struct spw_sealed data;
	struct spw_attr attr;
	int32_t status; /* 0 or an errno; preset to EIO by C */
	uint32_t pad;
};

/* A file without a name that nothing has open any more. */
struct spw_orphan {
	uint64_t ino;
	uint64_t epoch;
	int32_t status; /* 0: its row is deleted; preset to EIO by C */
	uint32_t pad;
};

/* A file that was read. */
struct spw_read {
	uint64_t ino;
	int64_t read_ns; /* to the minute */
};

/* What the process uses of what is limited. 0 stands for a number that is not known. */
struct spw_used {
	uint32_t threads; /* that answer calls, or did in the last 31 s (ntirpc, src/work_pool.c) */
	uint32_t descriptors;
	uint64_t descriptors_most;
};

/* The room that is left for bytes. The namespace gets it once a second. */
struct spw_space {
	uint64_t headroom_bytes; /* bytes that may still be written */
	uint64_t unsealed_bytes; /* written and not yet in the namespace's rows */
	uint32_t level;          /* enum spw_level */
	uint32_t flows;          /* number of flows that wrote lately */
	uint64_t refused_opens;  /* of data files, for want of descriptors, since the start */
	struct spw_used used;
};

/* An inode that lost a name. ino 0 means that none did. */
struct spw_removed {
	uint64_t ino;
	uint64_t epoch;
	uint64_t change; /* the new value */
	uint32_t kind;
	uint32_t nlink;
};

struct spw_dirent {
	uint64_t cookie;
	uint32_t name_offset; /* of a NUL-terminated name in the buffer */
	uint32_t pad;
	struct spw_attr attr;
};

struct spw_request {
	uint64_t ino;
	uint64_t ino2;
	uint64_t ino3;
	uint64_t cookie;
	uint64_t rdev;
	const char *name;
	const char *name2;
	const char *client; /* its address; empty: the gateway itself asks */
	const uint32_t *groups;
	struct spw_dirent *entries; /* entries_max of them */
	struct spw_seal *seals;     /* entries_max of them */
	struct spw_orphan *orphans; /* entries_max of them */
	char *buffer;               /* buffer_bytes */
	uint32_t name_len;
	uint32_t name2_len;
	uint32_t uid;
	uint32_t gid;
	uint32_t group_count;
	uint32_t flags;
	uint32_t kind;
	uint32_t entries_max;
	uint32_t buffer_bytes;
	uint32_t client_len;
	struct spw_setattr set;
	struct spw_space space;
	uint8_t verifier[8];
};

struct spw_reply {
	int32_t status; /* 0 or an errno */
	uint32_t count; /* entries of READDIR, 1 for a VERIFIER that exists */
	uint32_t eof;
	uint32_t length; /* bytes in the buffer */
	struct spw_attr attr;
	struct spw_attr parent;  /* the directory whose entries changed; ino 0: none */
	struct spw_attr parent2; /* the other one of a rename */
	struct spw_removed removed;
	uint64_t dirty_bytes; /* sealed and not yet in the bucket */
	uint64_t named_in; /* EAGAIN: directory of a link that must be removed first; 0: none */
	uint8_t verifier[8];
	char named[32]; /* its name */
};

struct spw_item {
	uint32_t op; /* enum spw_op */
	uint32_t pad;
	const struct spw_request *request;
	struct spw_reply *reply;
};

/* Transactions that were committed, by their number of changes and by the time that COMMIT took. Only
 * the thread that commits writes it, and others read it word by word (gateway/db/writer.py). */
struct spw_commits {
	uint64_t sizes[SPW_COMMIT_SIZES]; /* at most 1, 2, 4, … changes; the last: more */
	uint64_t changes;                 /* the sum */
	uint64_t durations[SPW_COMMIT_DURATIONS]; /* at most 1, 2, 4, … µs; the last: more */
	uint64_t duration_ns;                     /* the sum */
};

/* Answers all items. Changes are one transaction, which is durable on return. */
typedef void (*spw_batch_fn)(const struct spw_item *items, uint32_t count);

/* Python fills the table at the start. C sets abi and sizes, which Python compares. */
struct spw_table {
	uint32_t abi;
	uint32_t attr_bytes;
	uint32_t request_bytes;
	uint32_t reply_bytes;
	uint32_t dirent_bytes;
	uint32_t op_count;
	uint64_t root_ino;
	uint64_t root_generation;
	uint64_t volume_id;
	uint64_t boot; /* counts starts: the write verifier is made of it */
	uint64_t reserve_bytes; /* no data there: names, deletions first, must stay changeable */
	uint64_t dirty_limit_bytes; /* UINT64_MAX: no limit */
	uint32_t slow_per_mille;    /* filled part of limit or disk from which writers are slowed */
	uint32_t full_wait_ms;      /* how long a writer gets "wait" before it gets ENOSPC */
	uint32_t park_ms;           /* how long a READ of absent bytes waits before it gets "wait" */
	uint32_t acknowledges;      /* whether any CLOSE waits for the bucket */
	uint32_t acknowledge_ms;    /* how long such a CLOSE gets "wait" before EIO; 0: without end */
	uint32_t notes_opens;       /* whether the log of names has opens */
	char files_dir[4096];
	char run_dir[4096]; /* of sockets */
	const struct spw_commits *commits;
	spw_batch_fn batch;
};

/* ---- python.c ---- */

/* The embedded interpreter. It is started once and called from any thread, without Ganesha. */

/* The table that Python filled. */
extern struct spw_table spw_python;

/* Starts the interpreter of the virtual environment that `executable` belongs to, imports
 * fsal.entry and lets it fill the table from the configuration file. It must run before other
 * threads exist and after the last fork of the process. Returns 0, or -1 after a line on stderr
 * says why. */
int spw_python_start(const char *executable, const char *config_path);

/* Calls Python in this thread to answer requests. */
void spw_python_run(const struct spw_item *items, uint32_t count);

/* Has Python close the namespace, if it was started. No call of Python may come after it. */
void spw_python_stop(void);

/* ---- call.c ---- */

/* Gathered calls of the namespace: one thread at a time is in Python for all calls that wait. */

/* Starts the threads that spw_call needs. Returns 0 or an errno. */
int spw_calls_start(void);

/* Calls one operation. Returns 0 or the errno that it answered. */
int spw_call(enum spw_op op, const struct spw_request *request, struct spw_reply *reply);

#endif
