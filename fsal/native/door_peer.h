/* One who asks at the door: its socket, and what was received and is to be sent. Never waits. */
#ifndef SPILLWAY_DOOR_PEER_H
#define SPILLWAY_DOOR_PEER_H

#include "bridge.h"
#include "door_frame.h"

#define SPW_PEER_ASKED 64u /* requests without an answer, or whose answer is not sent yet */

struct spw_peer {
	int fd;               /* -1: gone; its place is free when nothing of it runs */
	bool ended;           /* nothing more is read */
	size_t held;          /* bytes in `in` */
	uint64_t active_ms;   /* when it last gave a whole frame, or took bytes */
	unsigned int running; /* requests that were taken and not answered */
	size_t sent, filled;  /* of `out`: what is sent, what is there */
	_Alignas(8) uint8_t in[SPW_DOOR_FRAME_BYTES];
	uint8_t out[SPW_PEER_ASKED * sizeof(struct spw_door_answer)];
};

/* Takes a socket over. */
void spw_peer_begin(struct spw_peer *peer, int fd);

/* Whether it is the user that the server is, or root. */
bool spw_peer_is_allowed(int fd);

/* Whether more of it can be read, or waits to be sent. */
bool spw_peer_reads(const struct spw_peer *peer);
bool spw_peer_writes(const struct spw_peer *peer);

/* Reads what is there. */
void spw_peer_receive(struct spw_peer *peer);

/* The next request as it was received, unless too many are under way; NULL: none. */
const uint8_t *spw_peer_next(struct spw_peer *peer, size_t *length);

/* The request that spw_peer_next returned last is done with. */
void spw_peer_took(struct spw_peer *peer, size_t length);

/* Nothing of what it sent or sends is understood any more. */
void spw_peer_mute(struct spw_peer *peer);

/* Adds an answer. frame: the request. attr: NULL for none. */
void spw_peer_answer(struct spw_peer *peer, const uint8_t *frame, int status,
		     const struct spw_attr *attr);

/* Sends what can be sent. */
void spw_peer_send(struct spw_peer *peer);

/* When it is to be dropped unless something comes or goes; UINT64_MAX: a worker is at it, 0: now. */
uint64_t spw_peer_due_ms(const struct spw_peer *peer);

void spw_peer_drop(struct spw_peer *peer);

/* A clock that nobody sets. */
uint64_t spw_peer_clock_ms(void);

#endif
