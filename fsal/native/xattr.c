/* Operations on extended attributes (RFC 8276). Only NFSv4.2 clients can ask for them. */
#include "handle.h"

#include <errno.h>
#include <stdbool.h>

#include "names.h"

#define XATTR_MAX_BYTES 65536u /* gateway/namespace/names.py VALUE_MAX_BYTES, NAMES_MAX_BYTES */

static struct spw_request request_for_key(struct fsal_obj_handle *obj, const xattrkey4 *key)
{
	struct spw_request request = spw_request_for(spw_handle_of(obj)->fh.ino, NULL);

	request.name = key->utf8string_val;
	request.name_len = key->utf8string_len;
	return request;
}

/* Ganesha asks with a small buffer, then (length 0) for the size, then with one of that size. */
static fsal_status_t getxattrs(struct fsal_obj_handle *obj, xattrkey4 *key, xattrvalue4 *value)
{
	struct spw_request request = request_for_key(obj, key);
	struct spw_reply reply;
	int rc;

	request.buffer = value->utf8string_val;
	request.buffer_bytes = value->utf8string_len;
	rc = spw_call(SPW_GETXATTR, &request, &reply);
	if (rc == ERANGE && value->utf8string_len == 0)
		rc = 0;
	if (rc == 0)
		value->utf8string_len = reply.length;
	return spw_status(rc);
}

/* Returns whether the export is read-only. Ganesha does not check it for these changes, unlike for
 * every other (nfs4_op_xattr.c). */
static bool read_only(void)
{
	return (op_ctx->export_perms.options & EXPORT_OPTION_MD_WRITE_ACCESS) == 0;
}

static fsal_status_t change(struct fsal_obj_handle *obj, enum spw_op op,
			    const struct spw_request *request)
{
	struct spw_handle *self = spw_handle_of(obj);
	struct spw_reply reply;
	int rc;

	if (read_only())
		return spw_status(EROFS);
	rc = spw_change(op, request, &reply);
	/* Without this call MDCACHE would keep the old ctime and change (mdcache_xattrs.c). */
	if (rc == 0)
		spw_upcall_invalidate(op_ctx->fsal_export->up_ops, self->fh.ino, self->fh.generation,
				      FSAL_UP_INVALIDATE_ATTRS);
	return spw_status(rc);
}

static fsal_status_t setxattrs(struct fsal_obj_handle *obj, setxattr_option4 option,
			       xattrkey4 *key, xattrvalue4 *value)
{
	struct spw_request request = request_for_key(obj, key);

	request.kind = option;
	request.name2 = value->utf8string_val;
	request.name2_len = value->utf8string_len;
	return change(obj, SPW_SETXATTR, &request);
}

static fsal_status_t removexattrs(struct fsal_obj_handle *obj, xattrkey4 *key)
{
	struct spw_request request = request_for_key(obj, key);

	return change(obj, SPW_REMOVEXATTR, &request);
}

static fsal_status_t listxattrs(struct fsal_obj_handle *obj, count4 most, nfs_cookie4 *cookie,
				bool_t *eof, xattrlist4 *names)
{
	struct spw_request request = spw_request_for(spw_handle_of(obj)->fh.ino, NULL);
	struct spw_reply reply;
	fsal_status_t status;
	int rc;

	request.buffer = gsh_malloc(XATTR_MAX_BYTES);
	request.buffer_bytes = XATTR_MAX_BYTES;
	rc = spw_call(SPW_LISTXATTR, &request, &reply);
	status = rc != 0 ? spw_status(rc)
			 : fsal_listxattr_helper(request.buffer, reply.length, most, cookie, eof,
						 names);
	gsh_free(request.buffer);
	return status;
}

void spw_xattr_ops(struct fsal_obj_ops *ops)
{
	ops->getxattrs = getxattrs;
	ops->setxattrs = setxattrs;
	ops->removexattrs = removexattrs;
	ops->listxattrs = listxattrs;
}
