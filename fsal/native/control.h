/* The control socket, over which other processes of the gateway ask the NFS server. */
#ifndef SPILLWAY_CONTROL_H
#define SPILLWAY_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bridge.h"

struct fsal_export;

/* ---- control_frame.c ---- */

/* Frames of the control socket: what other processes of the gateway ask the NFS server, and its
 * answers. No Ganesha, no Python, no sockets. gateway/rpc/frames.py is the other side.
 *
 * A frame is a head and a body, in the byte order of the machine, because both ends are on it. The
 * head never changes, so that a frame of another version can be skipped and refused. No length in a
 * frame is used before it was compared with the number of bytes that are there. */

#define SPW_CONTROL_MAGIC 0x524f4f44u
#define SPW_CONTROL_VERSION 6u
#define SPW_CONTROL_FRAME_BYTES 8192u /* the longest frame */
#define SPW_CONTROL_GROUPS 64u
#define SPW_CONTROL_NAME_BYTES 4096u /* the namespace decides which name is too long */
#define SPW_CONTROL_DATA_BYTES 8192u /* the most data that follow an answer */

/* As the length of a FAILED: nothing in the data file is believed any more, because the disk may
 * not have what was written. Before the answer, all that was PRESENT becomes wanted again when it
 * is read. Any other length: only what clients wait for failed. */
#define SPW_CONTROL_ALL_BYTES UINT64_MAX

/* A number is never used for another operation. */
enum spw_control_op {
	SPW_CONTROL_LOOKUP = 1,  /* ino, name                 -> attr */
	SPW_CONTROL_GETATTR,     /* ino                       -> attr */
	SPW_CONTROL_MKDIR,       /* ino, name, set            -> attr */
	SPW_CONTROL_SYMLINK,     /* ino, name, name2 = target, set -> attr */
	SPW_CONTROL_RENAME = 6,  /* ino, name, ino2, name2; change: 0, or the number without which it does
				  *   not move (EBUSY): into the trash or out of it, that of its row, and
				  *   nothing is replaced (EEXIST); of a reserved link, the fingerprint of what
				  *   it leads to -> attr */
	SPW_CONTROL_REMOVE,      /* ino, name; ino2, change: only this inode, with this change or 0 */
	SPW_CONTROL_SETATTR,     /* ino, set; uid 0           -> attr */
	/* From here to FAILED only the hydrator and root ask. Offset and length are in bytes. */
	SPW_CONTROL_EVICT = 10,  /* ino, change = content version -> attr; the data file is deleted
				  *   (EBUSY: the file is open or not clean) */
	SPW_CONTROL_WANTED,      /* ino = session of the hydrator, ino2 = ms to wait for one
				  *   -> attr, offset, length of bytes that a client waits for; ino 0: none
				  *   (EBUSY: another one waits, or an ARRIVED of an earlier session runs;
				  *   ESTALE: another session has followed) */
	SPW_CONTROL_PRESENT,     /* ino, ino2 = epoch, offset, length: bytes that are verified and in
				  *   the data file (ESTALE: the file has another epoch) */
	SPW_CONTROL_ARRIVED,     /* ino, ino2 = epoch, change = content version, offset = session: the
				  *   whole file is on stable storage -> attr (ESTALE: the file has another
				  *   epoch or version, or the last new WANTED was of another session) */
	SPW_CONTROL_FAILED,      /* ino, ino2 = epoch, change = errno, length = 0 or ALL_BYTES: the bytes
				  *   that clients wait for cannot be had */
	SPW_CONTROL_INSTALL,     /* ino = reserved directory, name, name2 = a file in <data>/files/incoming, set
				  *   -> attr; the file replaces what has the name (ENOENT: the prepared
				  *   file is gone) */
	SPW_CONTROL_STATISTICS,  /* -> offset = when the counts began, ns since 1970; data: a struct
				  *   spw_counts for each enum spw_counted, struct spw_commits */
	SPW_CONTROL_EXPORTS,     /* -> data: a struct spw_exported for each export of the plugin */
	/* The next three are asked again, for what follows. */
	SPW_CONTROL_CLIENTS,     /* offset = the number of rows that the peer has
				  *   -> data: a struct spw_client_row for each address; none: the end */
	SPW_CONTROL_LEASES,      /* offset = the greatest client id that the peer has, at first 0
				  *   -> data: a struct spw_lease for each; none: the end */
	SPW_CONTROL_OPENED,      /* ino, 0: all files; offset, length = place: at first 0, then as it was
				  *   answered -> data: a struct spw_opened_row for each open state;
				  *   offset, length = the next place; offset UINT64_MAX: the end */
	SPW_CONTROL_LOST,        /* ino, ino2 = epoch, change = content version, offset = enum spw_finding,
				  *   name = reason; the scrub and root ask -> attr: absent if the data file
				  *   was given up (ESTALE: the file has another epoch; EBUSY: it is open for
				  *   writing or has another version; EAGAIN: it is not certain what the
				  *   bucket has; EIO: it was damaged before, or given up a moment ago) */
};

struct spw_control_head {
	uint32_t magic;
	uint16_t version;
	uint16_t op;
	uint32_t length; /* of the frame, with this head; bytes */
	uint32_t pad;
	uint64_t id; /* chosen by the peer; the answer has the same */
};

/* Follows the head of a request. The groups, the name and the second name come after it. */
struct spw_control_body {
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
struct spw_control_answer {
	struct spw_control_head head;
	int32_t status; /* 0 or an errno */
	uint32_t pad;
	struct spw_attr attr; /* ino 0: none */
	uint64_t offset;
	uint64_t length;
};

/* A request, and what is answered to it. Offset and length are in bytes. */
struct spw_control_request {
	struct spw_request request;
	uint64_t offset;
	uint64_t length;
};

struct spw_control_reply {
	struct spw_attr attr; /* ino 0: none */
	uint64_t offset;
	uint64_t length;
	uint8_t *data; /* room for SPW_CONTROL_DATA_BYTES, aligned as malloc does */
	uint32_t data_bytes;
};

enum spw_control_verdict {
	SPW_CONTROL_PARTIAL, /* more bytes are needed */
	SPW_CONTROL_WHOLE,
	SPW_CONTROL_RUBBISH, /* what follows cannot be understood either */
};

/* Returns whether there is a frame at the beginning of so many bytes, and its length. */
enum spw_control_verdict spw_control_find(const uint8_t *bytes, size_t count, size_t *length);

/* Reads a whole request. frame: aligned as malloc does; names and groups of the request point into
 * it. Returns 0, EPROTONOSUPPORT for another version, or EBADMSG. */
int spw_control_decode(const uint8_t *frame, size_t length, struct spw_control_request *asked);

/* Fills an answer, without its data. reply: NULL for none. */
void spw_control_encode(const struct spw_control_head *asked, int status,
			const struct spw_control_reply *reply, struct spw_control_answer *answer);

/* ---- control_peer.c ---- */

/* A peer: its socket, the bytes that were received, and the bytes to send. Never waits. */

#define SPW_PEER_ASKED 64u /* requests without an answer, or with one that is not sent yet */
#define SPW_PEER_LONGEST (sizeof(struct spw_control_answer) + SPW_CONTROL_DATA_BYTES)

struct spw_peer {
	int fd;               /* -1: gone; the place is free when no request runs */
	bool ended;           /* nothing more is read */
	size_t held;          /* bytes in `in` */
	uint64_t active_ms;   /* when it last sent a whole frame, or took bytes */
	unsigned int running; /* requests that were taken and not answered */
	size_t sent, filled;  /* bytes of `out` that are sent, and that are there */
	_Alignas(8) uint8_t in[SPW_CONTROL_FRAME_BYTES];
	uint8_t out[SPW_PEER_ASKED * SPW_PEER_LONGEST];
};

/* Takes over a socket. */
void spw_peer_begin(struct spw_peer *peer, int fd);

/* Returns whether the peer's user is the server's user, or root. */
bool spw_peer_is_allowed(int fd);

/* Return whether bytes may be read from the peer, and whether bytes wait to be sent to it. */
bool spw_peer_reads(const struct spw_peer *peer);
bool spw_peer_writes(const struct spw_peer *peer);

/* Reads the bytes that are there. */
void spw_peer_receive(struct spw_peer *peer);

/* Returns the next request as it was received, or NULL if there is none or too many are under
 * way. */
const uint8_t *spw_peer_next(struct spw_peer *peer, size_t *length);

/* Drops the request that spw_peer_next returned last from the buffer. */
void spw_peer_took(struct spw_peer *peer, size_t length);

/* Ignores everything that the peer sent and will send: it cannot be understood any more. */
void spw_peer_mute(struct spw_peer *peer);

/* Adds an answer and its data. frame: the request. reply: NULL for none. */
void spw_peer_answer(struct spw_peer *peer, const uint8_t *frame, int status,
		     const struct spw_control_reply *reply);

/* Sends the bytes that the socket takes. */
void spw_peer_send(struct spw_peer *peer);

/* Returns when to drop the peer unless bytes come or go. UINT64_MAX: a worker answers it. 0:
 * now. */
uint64_t spw_peer_due_ms(const struct spw_peer *peer);

void spw_peer_drop(struct spw_peer *peer);

/* ---- control.c ---- */

/* The control socket: a socket over which other processes of the gateway ask the NFS server. No
 * Ganesha.
 *
 * One thread moves bytes and never waits for a peer. A few workers answer requests, many at a time,
 * so that their changes share a commit. A peer may be slow, silent or broken: it has bounded
 * buffers and a bounded number of requests, and is dropped when it stalls. No worker waits for
 * it. */

#define SPW_CONTROL_NAME "nfs.sock"

/* Answers a request, on any of the workers. reply is zero except for its room for data, and may be
 * filled. Returns 0 or an errno. */
typedef int (*spw_control_serve_fn)(uint32_t op, const struct spw_control_request *asked,
				    struct spw_control_reply *reply);

/* Answers a request from memory, on the thread that moves bytes: it must not wait, and it answers
 * while all workers wait for the namespace. Returns as above, or ENOSYS if a worker is to
 * answer. */
typedef int (*spw_control_tell_fn)(uint32_t op, struct spw_control_reply *reply);

/* Makes the socket in a directory, in place of one that a killed server left, and starts the
 * threads. Returns 0 or an errno. */
int spw_control_open(const char *directory, spw_control_serve_fn serve, spw_control_tell_fn tell);

/* Removes the socket, finishes the requests that workers run and ends the threads. Does nothing
 * when the control socket is not open. */
void spw_control_close(void);

/* ---- control_requests.c ---- */

/* The control socket of the NFS server: requests over the control socket become calls of the
 * namespace. */

/* Must be called when an export is made. Opens the control socket as soon as the server is ready,
 * unless it is open for another export. */
void spw_control_start(struct fsal_export *export);

/* Must be called when an export goes. Closes the control socket if it was opened for this export,
 * and returns when nothing of it runs. */
void spw_control_stop(const struct fsal_export *export);

#endif
