/* FSAL_PYTHON's Ganesha side: what main.c, export.c, names.c, open.c and io.c share. */
#ifndef SPILLWAY_FSAL_PYTHON_H
#define SPILLWAY_FSAL_PYTHON_H

#include "config.h"

#include <errno.h>
#include <string.h>

#include "fsal.h"
#include "fsal_convert.h"
#include "FSAL/fsal_commonlib.h"
#include "FSAL/fsal_config.h"
#include "fsal_handle_syscalls.h"
#include "fsal_types.h"
#include "FSAL/fsal_init.h"
#include "nfs_core.h"
#include "nfs_exports.h"
#include "sal_data.h"

#include "bridge.h"
#include "dentry.h"
#include "files.h"
#include "fresh.h"
#include "python.h"

#if FSAL_MAJOR_VERSION != 11
#error "this source knows FSAL API 11 (Ganesha 4.x)"
#endif

#define SPW_ATTRIBUTES \
	((attrmask_t)(ATTRS_POSIX | ATTR_CREATION | ATTR_GENERATION | ATTR4_XATTR))
#define SPW_LINK_MAX 32000 /* gateway/types.py LINK_MAX */

/* What a client holds of a file, and the key of Ganesha's cache. The volume is part of it because
 * that cache is shared by all exports of a module. */
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

/* The default status2 expects a struct fsal_fd right behind the state (default_methods.c). */
struct spw_state {
	struct state_t state;
	struct fsal_fd fd;
};

struct spw_export {
	struct fsal_export export;
};

static inline struct spw_handle *spw_handle_of(const struct fsal_obj_handle *obj)
{
	return container_of(obj, struct spw_handle, obj);
}

/* convert.c */

/* The answer of the namespace or of a system call, as Ganesha wants it. */
fsal_status_t spw_status(int error);

/* A request in the name of the caller of the current operation. */
struct spw_request spw_request_for(uint64_t ino, const char *name);

/* The attributes to set, from Ganesha's list; *_SERVER times become the time of now. */
struct spw_setattr spw_setattr_from(const struct fsal_attrlist *attrs);

/* Fills attributes for Ganesha; out may be NULL. */
void spw_attrs_out(const struct spw_attr *attr, struct fsal_attrlist *out);

/* export.c */
fsal_status_t spw_create_export(struct fsal_module *module, void *parse_node,
				struct config_error_type *err_type,
				const struct fsal_up_vector *up_ops);
fsal_status_t spw_update_export(struct fsal_module *module, void *parse_node,
				struct config_error_type *err_type, struct fsal_export *original,
				struct fsal_module *updated_super);

/* ops.c */

/* Fills the operations of every object, once. */
void spw_obj_ops_fill(void);

/* handle.c */

/* The operations of every object. */
extern struct fsal_obj_ops spw_obj_ops;

/* A new handle for an inode whose attributes the namespace just answered; they are corrected by what
 * is known here. asked: of spw_asked(), before the call. */
struct fsal_obj_handle *spw_handle_new(struct spw_attr *attr, uint64_t asked);

/* Makes the handle and, when wanted, the attributes of an answer. */
void spw_answer(struct spw_attr *attr, uint64_t asked, struct fsal_obj_handle **obj,
		struct fsal_attrlist *out);

/* change.c */

/* A call that changes the namespace: keeps what it answers of the inodes it touched. */
int spw_change(enum spw_op op, const struct spw_request *request, struct spw_reply *reply);

/* Sets what is in request->set. Returns 0 or an errno. */
int spw_set_attributes(struct spw_inode *inode, const struct spw_request *request,
		       struct spw_reply *reply);

/* Takes suid and sgid from a file whose bytes somebody else than root changed (POSIX write). */
void spw_drop_privileges(struct spw_handle *self);

/* names.c */

/* Asks who a name is, unless both the name and its inode are known here. Returns 0 or the errno. */
int spw_find(const struct spw_request *request, struct spw_attr *attr);
void spw_names_ops(struct fsal_obj_ops *ops);

/* share.c */

/* Whether an access without an open of its own is allowed by the shares of others. */
fsal_status_t spw_share_check(struct spw_inode *inode, fsal_openflags_t access, bool bypass);

/* Checks and changes the reservation of an open in one step. */
fsal_status_t spw_share_change(struct spw_inode *inode, fsal_openflags_t from, fsal_openflags_t to);

/* open.c */

void spw_open_ops(struct fsal_obj_ops *ops);
struct state_t *spw_alloc_state(struct fsal_export *export, enum state_type type,
				struct state_t *related);

/* xattr.c */
void spw_xattr_ops(struct fsal_obj_ops *ops);

/* io.c */
void spw_io_ops(struct fsal_obj_ops *ops);

#endif
