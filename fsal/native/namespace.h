/* The namespace, as far as bytes need it: functions that main.c gives at the start, so that the
 * callers need neither Ganesha nor Python. */
#ifndef SPILLWAY_NAMESPACE_H
#define SPILLWAY_NAMESPACE_H

#include <stdint.h>

#include "bridge.h"

/* Each returns 0 or an errno. */
struct spw_inode_ops {
	int (*open_write)(uint64_t ino, struct spw_attr *attr);
	/* Each with a status of its own, preset to EIO. */
	void (*seal)(struct spw_seal *seals, uint32_t count);
	int (*getattr)(uint64_t ino, struct spw_attr *attr);
	void (*reclaim)(struct spw_orphan *orphans, uint32_t count);
	/* Bytes of the file are lost, durably; reason NULL: it is whole again. */
	int (*damage)(uint64_t ino, const char *reason);
	/* The next inodes of which that is known, in ascending order. */
	int (*damages)(uint64_t after, uint64_t *inos, uint32_t most, uint32_t *count);
};

/* Before anything else: the namespace to ask; kept. */
void spw_namespace_start(const struct spw_inode_ops *given);

/* The namespace, as it was given at the start. */
const struct spw_inode_ops *spw_namespace(void);

#endif
