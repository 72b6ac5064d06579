/* The functions of the namespace that bytes need. main.c gives them at the start, so that their
 * callers need neither Ganesha nor Python. */
#ifndef SPILLWAY_NAMESPACE_H
#define SPILLWAY_NAMESPACE_H

#include <stdint.h>
#include <sys/stat.h>

#include "bridge.h"

/* Each returns 0 or an errno. */
struct spw_inode_ops {
	/* flags: of spw_request, or 0. */
	int (*open_write)(uint64_t ino, uint32_t flags, struct spw_attr *attr);
	/* Each seal has a status of its own, preset to EIO. */
	void (*seal)(struct spw_seal *seals, uint32_t count);
	int (*getattr)(uint64_t ino, struct spw_attr *attr);
	void (*reclaim)(struct spw_orphan *orphans, uint32_t count);
	/* Records durably that bytes of the file are lost. reason NULL: the file is whole again. */
	int (*damage)(uint64_t ino, const char *reason);
	/* Gives the next damaged inodes, in ascending order. */
	int (*damages)(uint64_t after, uint64_t *inos, uint32_t most, uint32_t *count);
	/* st: the data file, which nothing can write meanwhile, or NULL if there is none. */
	int (*evict)(uint64_t ino, uint64_t content_version, const struct stat *st,
		     struct spw_attr *attr);
	int (*arrived)(uint64_t ino, uint64_t epoch, uint64_t content_version,
		       struct spw_attr *attr);
	/* Says that the data file lacks bytes of the row, or cannot be read. The file becomes absent
	 * if the bucket has it, which *attr tells; if not, the reason is recorded as its damage. */
	int (*lost)(uint64_t ino, const char *reason, struct spw_attr *attr);
	/* Records when files were read. No inode is given twice. */
	void (*note_reads)(const struct spw_read *reads, uint32_t count);
	/* Says whether the bucket has the file as it is (enum spw_ack). */
	int (*acknowledged)(uint64_t ino, uint32_t *answer);
};

/* Sets the namespace to ask, before any other call; keeps a copy of `given`. */
void spw_namespace_start(const struct spw_inode_ops *given);

/* Returns the namespace that was given at the start. */
const struct spw_inode_ops *spw_namespace(void);

#endif
