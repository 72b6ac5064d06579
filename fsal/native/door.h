/* The door: a socket over which other processes of the gateway ask the NFS server. No Ganesha.
 *
 * One thread moves bytes and never waits for a peer. A few workers answer requests, many at a time,
 * so that their changes share a commit. A peer may be slow, silent or broken: it has bounded
 * buffers and a bounded number of requests, and is dropped when it stalls. No worker waits for it.
 */
#ifndef SPILLWAY_DOOR_H
#define SPILLWAY_DOOR_H

#include <stdint.h>

#include "door_frame.h"

#define SPW_DOOR_NAME "nfs.sock"

/* Answers a request, on any of the workers. reply is zero except for its room for data, and may be filled. Returns 0 or an
 * errno. */
typedef int (*spw_door_serve_fn)(uint32_t op, const struct spw_door_request *asked,
				 struct spw_door_reply *reply);

/* Answers a request from memory, on the thread that moves bytes: it must not wait, and it answers
 * while all workers wait for the namespace. Returns as above, or ENOSYS if a worker is to answer. */
typedef int (*spw_door_tell_fn)(uint32_t op, struct spw_door_reply *reply);

/* Makes the socket in a directory, in place of one that a killed server left, and starts the
 * threads. Returns 0 or an errno. */
int spw_door_open(const char *directory, spw_door_serve_fn serve, spw_door_tell_fn tell);

/* Removes the socket, finishes the requests that workers run and ends the threads. Does nothing
 * when the door is not open. */
void spw_door_close(void);

#endif
