/* A peer: its socket, the bytes that were received, and the bytes to send. Never waits. */
#ifndef SPILLWAY_DOOR_PEER_H
#define SPILLWAY_DOOR_PEER_H

#include "door_frame.h"

#define SPW_PEER_ASKED 64u /* requests without an answer, or with one that is not sent yet */
#define SPW_PEER_LONGEST (sizeof(struct spw_door_answer) + SPW_DOOR_DATA_BYTES)

struct spw_peer {
	int fd;               /* -1: gone; the place is free when no request runs */
	bool ended;           /* nothing more is read */
	size_t held;          /* bytes in `in` */
	uint64_t active_ms;   /* when it last sent a whole frame, or took bytes */
	unsigned int running; /* requests that were taken and not answered */
	size_t sent, filled;  /* bytes of `out` that are sent, and that are there */
	_Alignas(8) uint8_t in[SPW_DOOR_FRAME_BYTES];
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
		     const struct spw_door_reply *reply);

/* Sends the bytes that the socket takes. */
void spw_peer_send(struct spw_peer *peer);

/* Returns when to drop the peer unless bytes come or go. UINT64_MAX: a worker answers it. 0:
 * now. */
uint64_t spw_peer_due_ms(const struct spw_peer *peer);

void spw_peer_drop(struct spw_peer *peer);

#endif
