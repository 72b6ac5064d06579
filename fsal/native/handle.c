/* Object handles: made, named on the wire, described, released. */
#include "fsal_python.h"

struct fsal_obj_ops spw_obj_ops;

struct fsal_obj_handle *spw_handle_new(struct spw_attr *attr, uint64_t asked)
{
	struct spw_handle *self = gsh_calloc(1, sizeof(*self));

	fsal_obj_handle_init(&self->obj, op_ctx->fsal_export, (object_file_type_t)attr->kind);
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

void spw_answer(struct spw_attr *attr, uint64_t asked, struct fsal_obj_handle **obj,
		struct fsal_attrlist *out)
{
	*obj = spw_handle_new(attr, asked);
	spw_attrs_out(attr, out);
}

static void release(struct fsal_obj_handle *obj)
{
	struct spw_handle *self = spw_handle_of(obj);

	fsal_obj_handle_fini(obj);
	spw_inode_put(self->inode);
	gsh_free(self);
}

/* Everything a merge would have to move is in the inode object, which both handles share. */
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
	struct spw_attr attr;
	int rc = spw_getattr(spw_handle_of(obj)->inode, &attr);

	if (rc != 0) {
		if (FSAL_TEST_MASK(out->request_mask, ATTR_RDATTR_ERR))
			out->valid_mask = ATTR_RDATTR_ERR;
		return spw_status(rc);
	}
	spw_attrs_out(&attr, out);
	return fsalstat(ERR_FSAL_NO_ERROR, 0);
}

int spw_change(enum spw_op op, const struct spw_request *request, struct spw_reply *reply)
{
	uint64_t began = spw_dentry_change(op, request);
	int rc;

	spw_fresh_change(op, request);
	reply->attr.ino = reply->parent.ino = reply->parent2.ino = 0;
	reply->removed = (struct spw_removed){ 0 };
	rc = spw_call(op, request, reply);
	spw_dentry_changed(op, request, rc == 0 ? reply : NULL, began);
	if (rc == 0) {
		/* What was just made gets its inode object, and these attributes, with its handle. */
		if (op < SPW_CREATE || op > SPW_MKNOD)
			spw_changed(&reply->attr);
		spw_changed(&reply->parent);
		spw_changed(&reply->parent2);
		spw_removed(&reply->removed);
		spw_fresh_changed(op, request, reply);
	} else if (rc == EIO || rc == ENOSPC || rc == EAGAIN || rc == ESTALE) {
		spw_doubted(request->ino);
		if (request->ino2 != 0)
			spw_doubted(request->ino2);
	}
	return rc;
}

void spw_drop_privileges(struct spw_handle *self)
{
	struct spw_request request = spw_request_for(self->fh.ino, NULL);
	struct spw_attr attr;
	struct spw_reply reply;

	if (request.uid == 0 || !spw_is_privileged(self->inode) ||
	    spw_getattr(self->inode, &attr) != 0)
		return;
	request.set.mask = SPW_SET_MODE;
	request.set.mode = attr.mode & ~(uint32_t)S_ISUID;
	if (attr.mode & S_IXGRP)
		request.set.mode &= ~(uint32_t)S_ISGID;
	(void)spw_change(SPW_SETATTR, &request, &reply);
}

static fsal_status_t setattr2(struct fsal_obj_handle *obj, bool bypass, struct state_t *state,
			      struct fsal_attrlist *attrs)
{
	struct spw_handle *self = spw_handle_of(obj);
	struct spw_request request = spw_request_for(self->fh.ino, NULL);
	bool sets_mtime, is_kept = false;
	struct spw_reply reply;
	int rc = 0;

	request.set = spw_setattr_from(attrs);
	sets_mtime = (request.set.mask & SPW_SET_MTIME) && obj->type == REGULAR_FILE;
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
			spw_drop_privileges(self);
	}
	if (rc == 0 && sets_mtime)
		is_kept = spw_keep_open(self->inode);
	if (rc == 0 && request.set.mask != 0)
		rc = spw_change(SPW_SETATTR, &request, &reply);
	if (rc == 0 && sets_mtime)
		rc = spw_touch(self->inode, request.set.mtime_ns);
	if (is_kept)
		spw_writer_end(self->inode);
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
	spw_io_ops(&spw_obj_ops);
	spw_xattr_ops(&spw_obj_ops);
}
