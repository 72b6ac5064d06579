/* Room for bytes: who may write, how fast, and when no client may. No Ganesha, no Python.
 *
 * Headroom is what may still be written until the disk is filled up to its reserve, or until the dirty
 * limit. As long as there is plenty a write costs one atomic subtraction. In the last part of it
 * writers are slowed: at each tick a share of the headroom is granted, so that it is never used up but
 * shrinks ever slower, and settles where writers get what the drain makes free. Grants are divided
 * among flows (a client and a directory below the root) by weight, so that no burst starves others.
 *
 * When hardly anything is left and nothing was made free for full_wait_ms, the answer is ENOSPC.
 */
#ifndef SPILLWAY_SPACE_H
#define SPILLWAY_SPACE_H

#include <stdbool.h>
#include <stdint.h>

#include "bridge.h"

struct spw_limits {
	uint64_t reserve_bytes;
	uint64_t dirty_limit_bytes; /* UINT64_MAX: none */
	uint32_t slow_per_mille;
	uint32_t full_wait_ms;
};

/* What the disk and the namespace say. The first returns 0 or an errno. */
struct spw_space_ops {
	int (*disk)(uint64_t *total_bytes, uint64_t *free_bytes);
	void (*report)(const struct spw_space *space, uint64_t *dirty_bytes);
	/* Top directory and weight of a file that a client writes. */
	void (*flow)(uint64_t ino, const char *client, uint64_t *top, uint32_t *weight);
};

/* Sets the limits and looks once. */
void spw_space_start(const struct spw_limits *limits, const struct spw_space_ops *ops);

/* Starts the thread that looks at each tick. Returns 0 or an errno. */
int spw_space_thread(void);

/* One tick, for tests. now_ms: a clock that only goes forward. */
void spw_space_tick(uint64_t now_ms);

/* May `client` write `bytes` into the inode now? 0; EAGAIN: ask again later; ENOSPC. Waits for one
 * tick at the most, and only while few others wait. top: where the inode keeps the answer of `flow`. */
int spw_space_take(uint64_t ino, uint64_t *top, const char *client, uint64_t bytes);

/* What was taken is written, or will not be. */
void spw_space_done(uint64_t bytes);

/* The disk itself had no room: EAGAIN or ENOSPC, as above. */
int spw_space_refused(void);

/* Bytes by which files grew (or shrank) that no row has yet; then a row has them, or none ever will. */
void spw_space_grown(int64_t bytes);
void spw_space_sealed(uint64_t bytes, bool has_row);

/* What a client that asks how much is free is told. */
uint64_t spw_space_available(void);

#endif
