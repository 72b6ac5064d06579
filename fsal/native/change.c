/* Changes of the namespace: makes each, and keeps the attributes and names that the answers
 * tell. */
#include "names.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "handle.h"
#include "seal.h"

static _Atomic(const struct fsal_up_vector *) listener;

void spw_change_tell(const struct fsal_up_vector *up)
{
	atomic_store(&listener, up);
}

static int change(enum spw_op op, const struct spw_request *request, struct spw_reply *reply)
{
	uint64_t began = spw_dentry_change(op, request);
	int rc;

	spw_fresh_change(op, request);
	reply->attr.ino = reply->parent.ino = reply->parent2.ino = 0;
	reply->removed = (struct spw_removed){ 0 };
	rc = spw_call(op, request, reply);
	spw_dentry_changed(op, request, rc == 0 ? reply : NULL, began);
	if (rc == 0) {
		/* A new inode gets its object, and these attributes, with its handle. */
		if (op < SPW_CREATE || op > SPW_MKNOD)
			spw_changed(&reply->attr);
		spw_changed(&reply->parent);
		spw_changed(&reply->parent2);
		spw_removed(&reply->removed);
		spw_fresh_changed(op, request, reply);
	} else if (spw_is_indeterminate(rc)) {
		/* Invalidating after EAGAIN would spoil another client's change in the same
		 * directory. Ganesha's cache asks for the directory after that change, and answers
		 * it with the error of this question (mdcache_handle.c, mdcache_mkdir and others).
		 * A client that gets NFS4ERR_DELAY repeats the change, which was made, and gets
		 * EEXIST or ENOENT. */
		spw_inode_invalidate(request->ino);
		if (request->ino2 != 0)
			spw_inode_invalidate(request->ino2);
	}
	return rc;
}

/* The clients of a link learn that it is gone before the change is answered. */
static void tell_removed(const struct spw_reply *reply)
{
	const struct fsal_up_vector *up = atomic_load(&listener);

	if (up == NULL)
		return;
	spw_upcall_forget(up, reply->parent.ino, reply->parent.generation, false);
	spw_upcall_forget_known(up, reply->removed.ino);
}

bool spw_unname(int rc, const struct spw_reply *told)
{
	char name[sizeof(told->named)];
	struct spw_request request = { .ino = told->named_in, .name = name,
				       .flags = SPW_FOR_GATEWAY };
	struct spw_reply reply;

	if (rc != EAGAIN || told->named_in == 0)
		return false;
	memcpy(name, told->named, sizeof(name));
	request.name_len = (uint32_t)strnlen(name, sizeof(name));
	rc = change(SPW_REMOVE, &request, &reply);
	if (rc == 0)
		tell_removed(&reply);
	return rc == 0 || rc == ENOENT;
}

int spw_change(enum spw_op op, const struct spw_request *request, struct spw_reply *reply)
{
	int rc;

	do
		rc = change(op, request, reply);
	while (spw_unname(rc, reply));
	return rc;
}

int spw_set_attributes(struct spw_inode *inode, const struct spw_request *request,
		       struct spw_reply *reply)
{
	bool sets_mtime = request->set.mask & SPW_SET_MTIME;
	bool is_kept = sets_mtime && spw_keep_open(inode);
	int rc = spw_change(SPW_SETATTR, request, reply);

	if (rc == 0 && sets_mtime)
		rc = spw_touch(inode, request->set.mtime_ns);
	if (is_kept)
		spw_writer_end(inode);
	return rc;
}

void spw_drop_privileges(struct spw_inode *inode)
{
	struct spw_request request = spw_request_for(inode->ino, NULL);
	struct spw_reply reply;

	if (request.uid == 0 || !spw_may_be_privileged(inode))
		return;
	/* The transaction takes the bits from the mode that it finds: another client's chmod stays. */
	request.flags = SPW_WITHOUT_PRIVILEGES;
	(void)spw_change(SPW_SETATTR, &request, &reply);
}
