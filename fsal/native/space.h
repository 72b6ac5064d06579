/* Space for bytes: which client may write, how fast, and when none may. Without Ganesha and Python.
 *
 * Headroom is what may still be written until the disk is filled up to its reserve, or until the
 * dirty limit. While there is plenty of headroom, a write costs one atomic subtraction. In the last
 * part of it writers are slowed: each tick grants a share of the headroom, so that it is never used
 * up. It shrinks ever more slowly, and settles where writers get what the drain makes free. Grants
 * are divided among flows (a client and a directory below the root) by weight, so that no burst
 * starves others.
 *
 * If hardly any headroom is left and nothing was made free for full_wait_ms, the answer is ENOSPC.
 */
#ifndef SPILLWAY_SPACE_H
#define SPILLWAY_SPACE_H

#include <stdbool.h>
#include <stdint.h>

#include "bridge.h"

/* ---- space.c ---- */

struct spw_limits {
	uint64_t reserve_bytes;
	uint64_t dirty_limit_bytes; /* UINT64_MAX: no limit */
	uint32_t slow_per_mille;
	uint32_t full_wait_ms;
};

/* The questions to the disk and the namespace. `disk` returns 0 or an errno. */
struct spw_space_ops {
	int (*disk)(uint64_t *total_bytes, uint64_t *free_bytes);
	void (*report)(const struct spw_space *space, uint64_t *dirty_bytes);
	/* Gives the top directory of a file, and the weight of a client that writes it. */
	void (*flow)(uint64_t ino, const char *client, uint64_t *top, uint32_t *weight);
};

/* Sets the limits and looks at the disk once. */
void spw_space_start(const struct spw_limits *limits, const struct spw_space_ops *ops);

/* Starts the thread that looks at the disk at each tick. Returns 0 or an errno. */
int spw_space_thread(void);

/* Runs one tick; tests call it too. now_ms: the time of a clock that only goes forward. */
void spw_space_tick(uint64_t now_ms);

/* Takes room for `bytes` that `client` writes into the inode. Returns 0, EAGAIN (the client must
 * try again later) or ENOSPC. It waits for one tick at the most, and only while few others wait.
 * top: where the inode keeps the answer of `flow`. */
int spw_space_take(uint64_t ino, uint64_t *top, const char *client, uint64_t bytes);

/* Notes that bytes that were taken are written, or will not be. */
void spw_space_done(uint64_t bytes);

/* Notes that the disk itself had no room. Returns EAGAIN or ENOSPC, as above. */
int spw_space_refused(void);

/* The first notes bytes by which a file grew (or shrank) and which no row has yet. The second notes
 * that a row has them now, or that no row ever will. */
void spw_space_grown(int64_t bytes);
void spw_space_sealed(uint64_t bytes, bool has_row);

/* Returns the free bytes for a client that asks. */
uint64_t spw_space_available(void);

#endif
