/* Frames of the door: what other processes of the gateway ask the NFS server, and its answers. No
 * Ganesha, no Python, no sockets. gateway/door/frames.py is the other side.
 *
 * A frame is a head and a body, in the byte order of the machine, because both ends are on it. The
 * head never changes, so that a frame of another version can be skipped and refused. No length in a
 * frame is used before it was compared with the number of bytes that are there.
 */
#ifndef SPILLWAY_DOOR_FRAME_H
#define SPILLWAY_DOOR_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bridge.h"

#define SPW_DOOR_MAGIC 0x524f4f44u
#define SPW_DOOR_VERSION 5u
#define SPW_DOOR_FRAME_BYTES 8192u /* the longest frame */
#define SPW_DOOR_GROUPS 64u
#define SPW_DOOR_NAME_BYTES 4096u /* the namespace decides which name is too long */
#define SPW_DOOR_DATA_BYTES 8192u /* the most data that follow an answer */

/* As the length of a FAILED: nothing in the data file is believed any more, because the disk may not
 * have what was written. Before the answer, all that was PRESENT becomes wanted again when it is
 * read. Any other length: only what clients wait for failed. */
#define SPW_DOOR_ALL_BYTES UINT64_MAX

/* A number is never used for another operation. */
enum spw_door_op {
	SPW_DOOR_LOOKUP = 1,  /* ino, name                 -> attr */
	SPW_DOOR_GETATTR,     /* ino                       -> attr */
	SPW_DOOR_MKDIR,       /* ino, name, set            -> attr */
	SPW_DOOR_SYMLINK,     /* ino, name, name2 = target, set -> attr */
	SPW_DOOR_LINK,        /* ino2 = inode, ino, name   -> attr */
	SPW_DOOR_RENAME,      /* ino, name, ino2, name2; change: 0, or the number without which it does
			       *   not move (EBUSY): into the trash or out of it, that of its row, and
			       *   nothing is replaced (EEXIST); of a reserved link, the imprint of what
			       *   it leads to -> attr */
	SPW_DOOR_REMOVE,      /* ino, name; ino2, change: only this inode, with this change or 0 */
	SPW_DOOR_SETATTR,     /* ino, set; uid 0           -> attr */
	SPW_DOOR_INVALIDATE,  /* ino: its row was changed beside the server */
	/* From here to FAILED only the hydrator and root ask. Offset and length are in bytes. */
	SPW_DOOR_EVICT,       /* ino, change = content version -> attr; the data file is deleted
			       *   (EBUSY: the file is open or not clean) */
	SPW_DOOR_WANTED,      /* ino = session of the hydrator, ino2 = ms to wait for one
			       *   -> attr, offset, length of bytes that a client waits for; ino 0: none
			       *   (EBUSY: another one waits, or an ARRIVED of an earlier session runs;
			       *   ESTALE: another session has followed) */
	SPW_DOOR_PRESENT,     /* ino, ino2 = epoch, offset, length: bytes that are verified and in
			       *   the data file (ESTALE: the file has another epoch) */
	SPW_DOOR_ARRIVED,     /* ino, ino2 = epoch, change = content version, offset = session: the
			       *   whole file is on stable storage -> attr (ESTALE: the file has another
			       *   epoch or version, or the last new WANTED was of another session) */
	SPW_DOOR_FAILED,      /* ino, ino2 = epoch, change = errno, length = 0 or ALL_BYTES: the bytes
			       *   that clients wait for cannot be had */
	SPW_DOOR_INSTALL,     /* ino = reserved directory, name, name2 = a file in <data>/files/incoming, set
			       *   -> attr; the file replaces what has the name (ENOENT: the prepared
			       *   file is gone) */
	SPW_DOOR_STATISTICS,  /* -> offset = when the counts began, ns since 1970; data: a struct
			       *   spw_counts for each enum spw_counted, struct spw_commits */
	SPW_DOOR_EXPORTS,     /* -> data: a struct spw_exported for each export of the plugin */
	/* The next three are asked again, for what follows. */
	SPW_DOOR_CLIENTS,     /* offset = the number of rows that the peer has
			       *   -> data: a struct spw_client_row for each address; none: the end */
	SPW_DOOR_LEASES,      /* offset = the greatest client id that the peer has, at first 0
			       *   -> data: a struct spw_lease for each; none: the end */
	SPW_DOOR_OPENED,      /* ino, 0: all files; offset, length = place: at first 0, then as it was
			       *   answered -> data: a struct spw_opened_row for each open state;
			       *   offset, length = the next place; offset UINT64_MAX: the end */
};

struct spw_door_head {
	uint32_t magic;
	uint16_t version;
	uint16_t op;
	uint32_t length; /* of the frame, with this head; bytes */
	uint32_t pad;
	uint64_t id; /* chosen by the peer; the answer has the same */
};

/* Follows the head of a request. The groups, the name and the second name come after it. */
struct spw_door_body {
	uint64_t ino;
	uint64_t ino2;
	uint64_t change;
	uint64_t offset;
	uint64_t length;
	struct spw_setattr set;
	uint32_t uid;
	uint32_t gid;
	uint32_t group_count;
	uint32_t name_len;
	uint32_t name2_len;
	uint32_t flags; /* 0 or SPW_FOR_GATEWAY */
};

/* Its data follow: the rest of the frame. */
struct spw_door_answer {
	struct spw_door_head head;
	int32_t status; /* 0 or an errno */
	uint32_t pad;
	struct spw_attr attr; /* ino 0: none */
	uint64_t offset;
	uint64_t length;
};

/* A request, and what is answered to it. Offset and length are in bytes. */
struct spw_door_request {
	struct spw_request request;
	uint64_t offset;
	uint64_t length;
};

struct spw_door_reply {
	struct spw_attr attr; /* ino 0: none */
	uint64_t offset;
	uint64_t length;
	uint8_t *data; /* room for SPW_DOOR_DATA_BYTES, aligned as malloc does */
	uint32_t data_bytes;
};

enum spw_door_verdict {
	SPW_DOOR_PARTIAL, /* more bytes are needed */
	SPW_DOOR_WHOLE,
	SPW_DOOR_RUBBISH, /* what follows cannot be understood either */
};

/* Returns whether there is a frame at the beginning of so many bytes, and its length. */
enum spw_door_verdict spw_door_find(const uint8_t *bytes, size_t count, size_t *length);

/* Reads a whole request. frame: aligned as malloc does; names and groups of the request point into
 * it. Returns 0, EPROTONOSUPPORT for another version, or EBADMSG. */
int spw_door_decode(const uint8_t *frame, size_t length, struct spw_door_request *asked);

/* Fills an answer, without its data. reply: NULL for none. */
void spw_door_encode(const struct spw_door_head *asked, int status,
		     const struct spw_door_reply *reply, struct spw_door_answer *answer);

#endif
