/* Wrappers that count operations, each between Ganesha's cache and the plugin's own one. */
#include "handle.h"

#include <stdbool.h>

#include "util.h"

static struct fsal_obj_ops plain; /* the operations that are counted */

static enum spw_outcome outcome_of(fsal_status_t status)
{
	switch (status.major) {
	case ERR_FSAL_NO_ERROR:
	case ERR_FSAL_XATTR2BIG: /* so Ganesha learns how long a value is */
		return SPW_OUTCOME_DONE;
	case ERR_FSAL_DELAY:
		return SPW_OUTCOME_DELAYED;
	case ERR_FSAL_NOENT:
	case ERR_FSAL_NOXATTR:
		return SPW_OUTCOME_NOT_FOUND;
	case ERR_FSAL_EXIST:
	case ERR_FSAL_NOTEMPTY:
		return SPW_OUTCOME_EXISTS;
	case ERR_FSAL_ACCESS:
	case ERR_FSAL_PERM:
	case ERR_FSAL_ROFS:
	case ERR_FSAL_SHARE_DENIED:
		return SPW_OUTCOME_DENIED;
	case ERR_FSAL_NOSPC:
	case ERR_FSAL_DQUOT:
		return SPW_OUTCOME_NO_SPACE;
	case ERR_FSAL_STALE:
	case ERR_FSAL_BADHANDLE:
		return SPW_OUTCOME_STALE;
	case ERR_FSAL_IO:
	case ERR_FSAL_SERVERFAULT:
		return SPW_OUTCOME_IO;
	default:
		return SPW_OUTCOME_OTHER;
	}
}

fsal_status_t spw_counted(enum spw_counted kind, uint64_t began_ns, fsal_status_t status,
			  uint64_t bytes)
{
	enum spw_outcome outcome = outcome_of(status);
	uint64_t done = FSAL_IS_ERROR(status) ? 0 : bytes;

	spw_count(kind, began_ns, outcome, done);
	if (outcome != SPW_OUTCOME_DELAYED)
		spw_client_count(spw_calling(), kind, done);
	return status;
}

/* Defines counted_<op>, which calls the plugin's own operation and counts it. parameters and
 * arguments are those of the operation, in parentheses. */
#define COUNTED(op, kind, parameters, arguments)                              \
	static fsal_status_t counted_##op parameters                          \
	{                                                                     \
		uint64_t began = spw_clock_ns();                              \
									      \
		return spw_counted(kind, began, plain.op arguments, 0);       \
	}

COUNTED(lookup, SPW_COUNTED_LOOKUP,
	(struct fsal_obj_handle *dir, const char *name, struct fsal_obj_handle **obj,
	 struct fsal_attrlist *out),
	(dir, name, obj, out))
COUNTED(getattrs, SPW_COUNTED_GETATTR, (struct fsal_obj_handle *obj, struct fsal_attrlist *out),
	(obj, out))
COUNTED(setattr2, SPW_COUNTED_SETATTR,
	(struct fsal_obj_handle *obj, bool bypass, struct state_t *state,
	 struct fsal_attrlist *attrs),
	(obj, bypass, state, attrs))
COUNTED(readdir, SPW_COUNTED_READDIR,
	(struct fsal_obj_handle *dir, fsal_cookie_t *whence, void *dir_state, fsal_readdir_cb cb,
	 attrmask_t attrmask, bool *eof),
	(dir, whence, dir_state, cb, attrmask, eof))
COUNTED(reopen2, SPW_COUNTED_OPEN,
	(struct fsal_obj_handle *obj, struct state_t *state, fsal_openflags_t openflags),
	(obj, state, openflags))
COUNTED(commit2, SPW_COUNTED_COMMIT, (struct fsal_obj_handle *obj, off_t offset, size_t length),
	(obj, offset, length))
COUNTED(seek2, SPW_COUNTED_SEEK,
	(struct fsal_obj_handle *obj, struct state_t *state, struct io_info *info),
	(obj, state, info))
COUNTED(fallocate, SPW_COUNTED_ALLOCATE,
	(struct fsal_obj_handle *obj, struct state_t *state, uint64_t offset, uint64_t length,
	 bool allocate),
	(obj, state, offset, length, allocate))
COUNTED(mkdir, SPW_COUNTED_MKDIR,
	(struct fsal_obj_handle *dir, const char *name, struct fsal_attrlist *attrs,
	 struct fsal_obj_handle **obj, struct fsal_attrlist *out SPW_DIR_PARAMETERS(dir)),
	(dir, name, attrs, obj, out SPW_DIR_ARGUMENTS(dir)))
COUNTED(mknode, SPW_COUNTED_MKNOD,
	(struct fsal_obj_handle *dir, const char *name, object_file_type_t type,
	 struct fsal_attrlist *attrs, struct fsal_obj_handle **obj,
	 struct fsal_attrlist *out SPW_DIR_PARAMETERS(dir)),
	(dir, name, type, attrs, obj, out SPW_DIR_ARGUMENTS(dir)))
COUNTED(symlink, SPW_COUNTED_SYMLINK,
	(struct fsal_obj_handle *dir, const char *name, const char *target,
	 struct fsal_attrlist *attrs, struct fsal_obj_handle **obj,
	 struct fsal_attrlist *out SPW_DIR_PARAMETERS(dir)),
	(dir, name, target, attrs, obj, out SPW_DIR_ARGUMENTS(dir)))
COUNTED(readlink, SPW_COUNTED_READLINK,
	(struct fsal_obj_handle *obj, struct gsh_buffdesc *content, bool refresh),
	(obj, content, refresh))
COUNTED(link, SPW_COUNTED_LINK,
	(struct fsal_obj_handle *obj, struct fsal_obj_handle *dir,
	 const char *name SPW_DIR_PARAMETERS(dir)),
	(obj, dir, name SPW_DIR_ARGUMENTS(dir)))
COUNTED(rename, SPW_COUNTED_RENAME,
	(struct fsal_obj_handle *obj, struct fsal_obj_handle *old_dir, const char *old_name,
	 struct fsal_obj_handle *new_dir,
	 const char *new_name SPW_DIR_PARAMETERS(old) SPW_DIR_PARAMETERS(new)),
	(obj, old_dir, old_name, new_dir,
	 new_name SPW_DIR_ARGUMENTS(old) SPW_DIR_ARGUMENTS(new)))
COUNTED(unlink, SPW_COUNTED_REMOVE,
	(struct fsal_obj_handle *dir, struct fsal_obj_handle *obj,
	 const char *name SPW_DIR_PARAMETERS(dir)),
	(dir, obj, name SPW_DIR_ARGUMENTS(dir)))
COUNTED(getxattrs, SPW_COUNTED_GETXATTR,
	(struct fsal_obj_handle *obj, xattrkey4 *key, xattrvalue4 *value), (obj, key, value))
COUNTED(setxattrs, SPW_COUNTED_SETXATTR,
	(struct fsal_obj_handle *obj, setxattr_option4 option, xattrkey4 *key,
	 xattrvalue4 *value),
	(obj, option, key, value))
COUNTED(removexattrs, SPW_COUNTED_SETXATTR, (struct fsal_obj_handle *obj, xattrkey4 *key),
	(obj, key))
COUNTED(listxattrs, SPW_COUNTED_LISTXATTR,
	(struct fsal_obj_handle *obj, count4 most, nfs_cookie4 *cookie, bool_t *eof,
	 xattrlist4 *names),
	(obj, most, cookie, eof, names))

static fsal_status_t counted_close2(struct fsal_obj_handle *obj, struct state_t *state)
{
	uint64_t began = spw_clock_ns();

	if (state->state_type == STATE_TYPE_LOCK) /* the end of a lock closes no file */
		return plain.close2(obj, state);
	return spw_counted(SPW_COUNTED_CLOSE, began, plain.close2(obj, state), 0);
}

/* Counts an OPEN. Ganesha asks for a creation by name only after the name was not found. */
static fsal_status_t counted_open2(struct fsal_obj_handle *obj, struct state_t *state,
				   fsal_openflags_t openflags,
				   enum fsal_create_mode createmode, const char *name,
				   struct fsal_attrlist *attrs, fsal_verifier_t verifier,
				   struct fsal_obj_handle **made, struct fsal_attrlist *out,
				   bool *caller_perm_check SPW_DIR_PARAMETERS(parent))
{
	bool creates = name != NULL && createmode != FSAL_NO_CREATE;
	uint64_t began = spw_clock_ns();
	fsal_status_t status = plain.open2(obj, state, openflags, createmode, name, attrs, verifier,
					   made, out,
					   caller_perm_check SPW_DIR_ARGUMENTS(parent));

	return spw_counted(creates ? SPW_COUNTED_CREATE : SPW_COUNTED_OPEN, began, status, 0);
}

void spw_counted_ops(struct fsal_obj_ops *ops)
{
	plain = *ops;
	ops->open2 = counted_open2;
	ops->lookup = counted_lookup;
	ops->getattrs = counted_getattrs;
	ops->setattr2 = counted_setattr2;
	ops->readdir = counted_readdir;
	ops->reopen2 = counted_reopen2;
	ops->close2 = counted_close2;
	ops->commit2 = counted_commit2;
	ops->seek2 = counted_seek2;
	ops->fallocate = counted_fallocate;
	ops->mkdir = counted_mkdir;
	ops->mknode = counted_mknode;
	ops->symlink = counted_symlink;
	ops->readlink = counted_readlink;
	ops->link = counted_link;
	ops->rename = counted_rename;
	ops->unlink = counted_unlink;
	ops->getxattrs = counted_getxattrs;
	ops->setxattrs = counted_setxattrs;
	ops->removexattrs = counted_removexattrs;
	ops->listxattrs = counted_listxattrs;
}
