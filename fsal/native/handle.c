/* Object handles of inodes whose attributes the namespace answered. */
#include "handle.h"

struct fsal_obj_ops spw_obj_ops;

struct fsal_obj_handle *spw_handle_new(const struct spw_attr *attr, uint64_t asked)
{
	struct spw_handle *self = gsh_calloc(1, sizeof(*self));

	spw_obj_begin(&self->obj, op_ctx->fsal_export, (object_file_type_t)attr->kind);
	self->obj.obj_ops = &spw_obj_ops;
	self->obj.fileid = attr->ino;
	self->obj.fsid.major = spw_python.volume_id >> 32;
	self->obj.fsid.minor = spw_python.volume_id & UINT32_MAX;
	self->fh.magic = SPW_FH_MAGIC;
	self->fh.version = SPW_FH_VERSION;
	self->fh.volume_id = spw_python.volume_id;
	self->fh.ino = attr->ino;
	self->fh.generation = attr->generation;
	self->inode = spw_inode_get(attr, asked);
	return &self->obj;
}

/* Ganesha would keep attributes that are known to be old for 60 s, and an empty list too. So it gets
 * those of now, or an error: then it asks for them before it uses them. */
void spw_current_attrs_out(struct fsal_obj_handle *obj, struct fsal_attrlist *out)
{
	struct spw_attr attr;

	if (out == NULL)
		return;
	if (spw_getattr(spw_handle_of(obj)->inode, &attr) == 0)
		spw_attrs_out(&attr, out);
	else
		out->valid_mask = ATTR_RDATTR_ERR;
}

void spw_answer(const struct spw_attr *attr, uint64_t asked, struct fsal_obj_handle **obj,
		struct fsal_attrlist *out)
{
	*obj = spw_handle_new(attr, asked);
	spw_current_attrs_out(*obj, out);
}
