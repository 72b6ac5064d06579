/* The handles of an inode: Ganesha's object handle, and the file handle that a client has. */
#ifndef SPILLWAY_HANDLE_H
#define SPILLWAY_HANDLE_H

#include <stdint.h>

#include "bridge.h"
#include "ganesha.h"
#include "inode.h"

/* The file handle that a client has. It is also the key of Ganesha's cache. The volume is part of
 * it because all exports of a module share that cache. */
struct spw_fh {
	uint32_t magic;
	uint32_t version;
	uint64_t volume_id;
	uint64_t ino;
	uint64_t generation;
};

#define SPW_FH_MAGIC 0x53505759u
#define SPW_FH_VERSION 1u

struct spw_handle {
	struct fsal_obj_handle obj;
	struct spw_fh fh;
	struct spw_inode *inode;
};

static inline struct spw_handle *spw_handle_of(const struct fsal_obj_handle *obj)
{
	return container_of(obj, struct spw_handle, obj);
}

/* The operations of every object. */
extern struct fsal_obj_ops spw_obj_ops;

/* Makes a handle for an inode whose attributes the namespace just answered. asked: result of
 * spw_asked() before the call. */
struct fsal_obj_handle *spw_handle_new(const struct spw_attr *attr, uint64_t asked);

/* Fills the attributes of an object as they are now, or marks that they are not known. out may be
 * NULL. */
void spw_current_attrs_out(struct fsal_obj_handle *obj, struct fsal_attrlist *out);

/* Makes the handle and, when wanted, the attributes of an answer. */
void spw_answer(const struct spw_attr *attr, uint64_t asked, struct fsal_obj_handle **obj,
		struct fsal_attrlist *out);

#endif
