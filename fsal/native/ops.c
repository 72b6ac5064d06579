/* Table of operations on an object, and the operations of every kind of object. */
#include "handle.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "bytes.h"
#include "names.h"
#include "openstate.h"

static void release(struct fsal_obj_handle *obj)
{
	struct spw_handle *self = spw_handle_of(obj);

	spw_obj_end(obj);
	spw_inode_put(self->inode);
	gsh_free(self);
}

/* Does nothing: all that a merge would have to move is in the inode object, which both handles
 * share. */
static fsal_status_t merge(struct fsal_obj_handle *original, struct fsal_obj_handle *duplicate)
{
	(void)original;
	(void)duplicate;
	return fsalstat(ERR_FSAL_NO_ERROR, 0);
}

static fsal_status_t handle_to_wire(const struct fsal_obj_handle *obj, fsal_digesttype_t type,
				    struct gsh_buffdesc *desc)
{
	const struct spw_handle *self = spw_handle_of(obj);

	(void)type;
	if (desc->len < sizeof(self->fh))
		return fsalstat(ERR_FSAL_TOOSMALL, 0);
	memcpy(desc->addr, &self->fh, sizeof(self->fh));
	desc->len = sizeof(self->fh);
	return fsalstat(ERR_FSAL_NO_ERROR, 0);
}

static void handle_to_key(struct fsal_obj_handle *obj, struct gsh_buffdesc *desc)
{
	struct spw_handle *self = spw_handle_of(obj);

	desc->addr = &self->fh;
	desc->len = sizeof(self->fh);
}

static fsal_status_t getattrs(struct fsal_obj_handle *obj, struct fsal_attrlist *out)
{
	const struct spw_handle *self = spw_handle_of(obj);
	struct spw_attr attr;
	int rc = spw_getattr(self->inode, &attr);

	spw_stale_names_check(self->fh.ino, self->fh.generation);
	if (rc != 0) {
		if (FSAL_TEST_MASK(out->request_mask, ATTR_RDATTR_ERR))
			out->valid_mask = ATTR_RDATTR_ERR;
		return spw_status(rc);
	}
	spw_attrs_out(&attr, out);
	return fsalstat(ERR_FSAL_NO_ERROR, 0);
}

static fsal_status_t setattr2(struct fsal_obj_handle *obj, bool bypass, struct state_t *state,
			      struct fsal_attrlist *attrs)
{
	struct spw_handle *self = spw_handle_of(obj);
	struct spw_request request = spw_request_for(self->fh.ino, NULL);
	struct spw_reply reply;
	int rc = 0;

	request.set = spw_setattr_from(attrs);
	if (FSAL_TEST_MASK(attrs->valid_mask, ATTR_SIZE)) {
		if (obj->type != REGULAR_FILE)
			return spw_status(obj->type == DIRECTORY ? EISDIR : EINVAL);
		if (state == NULL) {
			fsal_status_t status = spw_share_check(self->inode, FSAL_O_WRITE, bypass);

			if (FSAL_IS_ERROR(status))
				return status;
		}
		rc = spw_truncate(self->inode, attrs->filesize);
		if (rc == 0)
			spw_drop_privileges(self->inode);
	}
	if (rc == 0 && request.set.mask != 0)
		rc = spw_set_attributes(self->inode, &request, &reply);
	/* Ganesha takes the attributes for unchanged then, but the file may be truncated. */
	if (rc != 0 && FSAL_TEST_MASK(attrs->valid_mask, ATTR_SIZE))
		spw_upcall_invalidate(op_ctx->fsal_export->up_ops, self->fh.ino, self->fh.generation,
				      FSAL_UP_INVALIDATE_ATTRS);
	return spw_status(rc);
}

void spw_obj_ops_fill(void)
{
	fsal_default_obj_ops_init(&spw_obj_ops);
	spw_obj_ops.release = release;
	spw_obj_ops.merge = merge;
	spw_obj_ops.handle_to_wire = handle_to_wire;
	spw_obj_ops.handle_to_key = handle_to_key;
	spw_obj_ops.getattrs = getattrs;
	spw_obj_ops.setattr2 = setattr2;
	spw_names_ops(&spw_obj_ops);
	spw_open_ops(&spw_obj_ops);
	spw_lock_ops(&spw_obj_ops);
	spw_io_ops(&spw_obj_ops);
	spw_xattr_ops(&spw_obj_ops);
	spw_counted_ops(&spw_obj_ops);
}
