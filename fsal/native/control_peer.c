/* Peer of the control socket: its buffers are bounded, and one that stalls is dropped after a
 * time. */
#define _GNU_SOURCE
#include "control.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util.h"

#ifndef SPW_CONTROL_STALL_MS
#define SPW_CONTROL_STALL_MS 10000u /* half a frame, or an answer that is not read */
#endif
#define IDLE_MS 60000u /* places are few */

void spw_peer_begin(struct spw_peer *peer, int fd)
{
	peer->fd = fd;
	peer->ended = false;
	peer->active_ms = spw_clock_ms();
}

bool spw_peer_is_allowed(int fd)
{
	struct ucred peer;
	socklen_t length = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
	       (peer.uid == 0 || peer.uid == geteuid());
}

static bool has_room(const struct spw_peer *peer)
{
	size_t unsent = (peer->filled - peer->sent + SPW_PEER_LONGEST - 1) / SPW_PEER_LONGEST;

	return peer->running + unsent < SPW_PEER_ASKED;
}

bool spw_peer_reads(const struct spw_peer *peer)
{
	return !peer->ended && peer->held < SPW_CONTROL_FRAME_BYTES && has_room(peer);
}

bool spw_peer_writes(const struct spw_peer *peer)
{
	return peer->filled != peer->sent;
}

void spw_peer_receive(struct spw_peer *peer)
{
	ssize_t got = recv(peer->fd, peer->in + peer->held, SPW_CONTROL_FRAME_BYTES - peer->held,
			   MSG_DONTWAIT);

	if (got > 0) {
		if (peer->held == 0)
			peer->active_ms = spw_clock_ms();
		peer->held += (size_t)got;
	} else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
		peer->ended = true;
	}
}

void spw_peer_mute(struct spw_peer *peer)
{
	peer->ended = true;
	peer->held = 0;
}

const uint8_t *spw_peer_next(struct spw_peer *peer, size_t *length)
{
	if (!has_room(peer))
		return NULL;
	switch (spw_control_find(peer->in, peer->held, length)) {
	case SPW_CONTROL_WHOLE:
		return peer->in;
	case SPW_CONTROL_RUBBISH:
		spw_peer_mute(peer);
		return NULL;
	default:
		return NULL;
	}
}

void spw_peer_took(struct spw_peer *peer, size_t length)
{
	peer->held -= length;
	memmove(peer->in, peer->in + length, peer->held);
	peer->active_ms = spw_clock_ms();
}

void spw_peer_answer(struct spw_peer *peer, const uint8_t *frame, int status,
		     const struct spw_control_reply *reply)
{
	struct spw_control_answer answer;
	struct spw_control_head head;

	if (peer->fd < 0)
		return;
	memcpy(&head, frame, sizeof(head));
	spw_control_encode(&head, status, reply, &answer);
	if (peer->filled == peer->sent)
		peer->active_ms = spw_clock_ms();
	/* There is room: spw_peer_next returns no more requests than there are places. */
	peer->filled -= peer->sent;
	memmove(peer->out, peer->out + peer->sent, peer->filled);
	peer->sent = 0;
	memcpy(peer->out + peer->filled, &answer, sizeof(answer));
	peer->filled += sizeof(answer);
	if (reply != NULL && reply->data_bytes > 0) {
		memcpy(peer->out + peer->filled, reply->data, reply->data_bytes);
		peer->filled += reply->data_bytes;
	}
}

void spw_peer_send(struct spw_peer *peer)
{
	ssize_t gone;

	if (!spw_peer_writes(peer))
		return;
	gone = send(peer->fd, peer->out + peer->sent, peer->filled - peer->sent,
		    MSG_DONTWAIT | MSG_NOSIGNAL);
	if (gone >= 0) {
		peer->sent += (size_t)gone;
		peer->active_ms = spw_clock_ms();
	} else if (errno != EAGAIN && errno != EINTR) {
		peer->ended = true;
		peer->sent = peer->filled;
	}
}

uint64_t spw_peer_due_ms(const struct spw_peer *peer)
{
	if (spw_peer_writes(peer))
		return peer->active_ms + SPW_CONTROL_STALL_MS;
	if (peer->running > 0)
		return UINT64_MAX;
	if (peer->ended)
		return 0;
	return peer->active_ms + (peer->held > 0 ? SPW_CONTROL_STALL_MS : IDLE_MS);
}

void spw_peer_drop(struct spw_peer *peer)
{
	close(peer->fd);
	peer->fd = -1;
	peer->held = peer->sent = peer->filled = 0;
}
