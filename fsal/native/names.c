/* Operations on names. Each is one call of the namespace, durable when it returns. */
#include "names.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "handle.h"

#define READDIR_ENTRIES 128u /* as many as MDCACHE keeps in a chunk (Dir_Chunk) */
#define READDIR_BYTES (READDIR_ENTRIES * 256u)

static uint64_t ino_of(const struct fsal_obj_handle *obj)
{
	return spw_handle_of(obj)->fh.ino;
}

/* Calls an operation that makes an object, and answers with the object. */
static fsal_status_t make(enum spw_op op, const struct spw_request *request,
			  struct fsal_obj_handle **obj, struct fsal_attrlist *out)
{
	uint64_t asked = spw_asked();
	struct spw_reply reply;
	int rc = spw_change(op, request, &reply);

	if (rc == 0) {
		spw_answer(&reply.attr, asked, obj, out);
		spw_stale_names_note(request->ino, request->name, reply.attr.ino);
	}
	return spw_status(rc);
}

/* Asks the namespace for the inode of a name, or for a parent. */
static int ask(enum spw_op op, const struct spw_request *request, struct spw_attr *attr)
{
	struct spw_reply reply;
	int rc = spw_call(op, request, &reply);

	if (rc == 0)
		*attr = reply.attr;
	return rc;
}

/* Returns whether only the gateway changes a directory, as far as is known. */
static bool is_reserved(uint64_t dir)
{
	struct spw_attr attr;

	return !spw_inode_known(dir, &attr) || attr.reserved;
}

int spw_find(const struct spw_request *request, struct spw_attr *attr)
{
	uint64_t began = spw_dentry_asked();
	uint64_t ino = spw_dentry_find(request->ino, request->name, request->name_len);
	bool is_trash = request->ino == SPW_TRASH_INO || ino == SPW_TRASH_INO;
	int rc;

	/* What the gateway found must not lead a client into the trash: the namespace decides. */
	if (ino != 0 && !is_trash && spw_inode_known(ino, attr))
		return 0;
	rc = ask(SPW_LOOKUP, request, attr);
	if (rc == 0)
		spw_dentry_learn(request->ino, request->name, request->name_len, attr->ino, began);
	/* The gateway makes names without this process, where clients find none and in directories
	 * that only it changes. */
	else if (rc == ENOENT && !(request->flags & SPW_FOR_GATEWAY) && !is_reserved(request->ino))
		spw_dentry_learn(request->ino, request->name, request->name_len, SPW_NO_INO, began);
	return rc;
}

/* Returns whether a directory is known not to have a name that clients find. */
static bool lacks(const struct spw_request *request)
{
	return spw_fresh_lacks(request->ino, request->name, request->name_len) ||
	       spw_dentry_lacks(request->ino, request->name, request->name_len);
}

static fsal_status_t lookup(struct fsal_obj_handle *dir, const char *name,
			    struct fsal_obj_handle **obj, struct fsal_attrlist *out)
{
	struct spw_request request = spw_request_for(ino_of(dir), name);
	uint64_t asked = spw_asked();
	bool is_parent = strcmp(name, "..") == 0;
	struct spw_attr attr;
	int rc;

	*obj = NULL;
	if (!is_parent && request.name_len <= NAME_MAX && lacks(&request))
		return spw_status(ENOENT);
	rc = is_parent ? ask(SPW_LOOKUP_PARENT, &request, &attr) : spw_find(&request, &attr);
	if (rc == 0)
		spw_answer(&attr, asked, obj, out);
	return spw_status(rc);
}

/* Remembers the names of a listing. */
static void learn(const struct spw_request *request, uint32_t count, uint64_t began)
{
	for (uint32_t i = 0; i < count; i++) {
		const char *name = request->buffer + request->entries[i].name_offset;

		spw_dentry_learn(request->ino, name, (uint32_t)strlen(name),
				 request->entries[i].attr.ino, began);
	}
}

/* Hands entries to MDCACHE. Returns false when MDCACHE wants no more. */
static bool deliver(const struct spw_request *request, uint32_t count, uint64_t asked,
		    attrmask_t attrmask, fsal_readdir_cb cb, void *dir_state, bool *stopped)
{
	for (uint32_t i = 0; i < count; i++) {
		struct spw_dirent *entry = &request->entries[i];
		struct fsal_obj_handle *obj;
		struct fsal_attrlist attrs;
		enum fsal_dir_result result;

		fsal_prepare_attrs(&attrs, attrmask);
		spw_answer(&entry->attr, asked, &obj, &attrs);
		result = cb(request->buffer + entry->name_offset, obj, &attrs, dir_state,
			    entry->cookie);
		fsal_release_attrs(&attrs);
		if (result >= DIR_TERMINATE) {
			*stopped = true;
			return false;
		}
		if (result == DIR_READAHEAD && i + 1 == count)
			return false;
	}
	return true;
}

static fsal_status_t readdir_(struct fsal_obj_handle *dir, fsal_cookie_t *whence, void *dir_state,
			     fsal_readdir_cb cb, attrmask_t attrmask, bool *eof)
{
	struct spw_request request = spw_request_for(ino_of(dir), NULL);
	struct spw_reply reply;
	bool more = true, stopped = false;
	int rc = 0;

	request.entries = gsh_malloc(READDIR_ENTRIES * sizeof(*request.entries));
	request.entries_max = READDIR_ENTRIES;
	request.buffer = gsh_malloc(READDIR_BYTES);
	request.buffer_bytes = READDIR_BYTES;
	request.cookie = whence != NULL ? *whence : 0;
	/* Cookies are positive in the database, so no entry comes after a greater one. */
	*eof = request.cookie > INT64_MAX;
	while (more && !*eof) {
		uint64_t asked = spw_asked(), began = spw_dentry_asked();

		rc = spw_call(SPW_READDIR, &request, &reply);
		if (rc != 0)
			break;
		learn(&request, reply.count, began);
		more = deliver(&request, reply.count, asked, attrmask, cb, dir_state, &stopped);
		if (reply.eof) {
			*eof = !stopped;
			break;
		}
		request.cookie = request.entries[reply.count - 1].cookie;
	}
	gsh_free(request.entries);
	gsh_free(request.buffer);
	return spw_status(rc);
}

static fsal_status_t mkdir_(struct fsal_obj_handle *dir, const char *name,
			    struct fsal_attrlist *attrs_in, struct fsal_obj_handle **obj,
			    struct fsal_attrlist *out SPW_DIR_PARAMETERS(dir))
{
	struct spw_request request = spw_request_for(ino_of(dir), name);
	uint64_t began = spw_fresh_begin();
	fsal_status_t status;

	*obj = NULL;
	request.set = spw_setattr_from(attrs_in);
	status = make(SPW_MKDIR, &request, obj, out);
	if (*obj != NULL)
		spw_fresh_made(ino_of(*obj), began);
	return status;
}

static fsal_status_t mknode(struct fsal_obj_handle *dir, const char *name, object_file_type_t type,
			    struct fsal_attrlist *attrs_in, struct fsal_obj_handle **obj,
			    struct fsal_attrlist *out SPW_DIR_PARAMETERS(dir))
{
	struct spw_request request = spw_request_for(ino_of(dir), name);

	*obj = NULL;
	request.set = spw_setattr_from(attrs_in);
	request.kind = type;
	if (FSAL_TEST_MASK(attrs_in->valid_mask, ATTR_RAWDEV))
		request.rdev = (uint64_t)attrs_in->rawdev.major << 32 |
			       (uint32_t)attrs_in->rawdev.minor;
	return make(SPW_MKNOD, &request, obj, out);
}

static fsal_status_t symlink_(struct fsal_obj_handle *dir, const char *name, const char *target,
			      struct fsal_attrlist *attrs_in, struct fsal_obj_handle **obj,
			      struct fsal_attrlist *out SPW_DIR_PARAMETERS(dir))
{
	struct spw_request request = spw_request_for(ino_of(dir), name);

	*obj = NULL;
	request.name2 = target;
	request.name2_len = (uint32_t)strlen(target);
	request.set = spw_setattr_from(attrs_in);
	return make(SPW_SYMLINK_OP, &request, obj, out);
}

static fsal_status_t readlink_(struct fsal_obj_handle *obj, struct gsh_buffdesc *content,
			       bool refresh)
{
	struct spw_request request = spw_request_for(ino_of(obj), NULL);
	struct spw_reply reply;
	char target[4096];
	int rc;

	(void)refresh;
	request.buffer = target;
	request.buffer_bytes = sizeof(target);
	rc = spw_call(SPW_READLINK, &request, &reply);
	if (rc != 0)
		return spw_status(rc);
	/* Ganesha frees the buffer and wants the NUL counted (fsal_api.h, readlink). */
	content->len = (size_t)reply.length + 1;
	content->addr = gsh_malloc(content->len);
	memcpy(content->addr, target, reply.length);
	((char *)content->addr)[reply.length] = '\0';
	return fsalstat(ERR_FSAL_NO_ERROR, 0);
}

static fsal_status_t link_(struct fsal_obj_handle *obj, struct fsal_obj_handle *dir,
			   const char *name SPW_DIR_PARAMETERS(dir))
{
	struct spw_request request = spw_request_for(ino_of(dir), name);
	struct spw_reply reply;
	int rc;

	request.ino2 = ino_of(obj);
	rc = spw_change(SPW_LINK, &request, &reply);
	if (rc == 0)
		spw_stale_names_note(request.ino, name, reply.attr.ino);
	return spw_status(rc);
}

static fsal_status_t rename_(struct fsal_obj_handle *obj, struct fsal_obj_handle *old_dir,
			     const char *old_name, struct fsal_obj_handle *new_dir,
			     const char *new_name SPW_DIR_PARAMETERS(old)
				     SPW_DIR_PARAMETERS(new))
{
	struct spw_request request = spw_request_for(ino_of(old_dir), old_name);
	struct spw_reply reply;

	/* Ganesha keeps the new name for `obj`, so another inode must not move. */
	request.ino2 = ino_of(new_dir);
	request.ino3 = ino_of(obj);
	request.name2 = new_name;
	request.name2_len = (uint32_t)strlen(new_name);
	return spw_status(spw_change(SPW_RENAME, &request, &reply));
}

static fsal_status_t unlink_(struct fsal_obj_handle *dir, struct fsal_obj_handle *obj,
			     const char *name SPW_DIR_PARAMETERS(dir))
{
	struct spw_request request = spw_request_for(ino_of(dir), name);
	struct spw_reply reply;

	(void)obj;
	return spw_status(spw_change(SPW_REMOVE, &request, &reply));
}

void spw_names_ops(struct fsal_obj_ops *ops)
{
	ops->lookup = lookup;
	ops->readdir = readdir_;
	ops->mkdir = mkdir_;
	ops->mknode = mknode;
	ops->symlink = symlink_;
	ops->readlink = readlink_;
	ops->link = link_;
	ops->rename = rename_;
	ops->unlink = unlink_;
}
