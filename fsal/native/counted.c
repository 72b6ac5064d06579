/* Counts operations, each between Ganesha's cache and the plugin's own one. */
#include "counted.h"

#include <stdbool.h>

#include "caller.h"
#include "clients.h"
#include "clock.h"
#include "releases.h"

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

static fsal_status_t lookup(struct fsal_obj_handle *dir, const char *name,
			    struct fsal_obj_handle **obj, struct fsal_attrlist *out)
{
	uint64_t began = spw_clock_ns();

	return spw_counted(SPW_COUNTED_LOOKUP, began, plain.lookup(dir, name, obj, out), 0);
}

static fsal_status_t getattrs(struct fsal_obj_handle *obj, struct fsal_attrlist *out)
{
	uint64_t began = spw_clock_ns();

	return spw_counted(SPW_COUNTED_GETATTR, began, plain.getattrs(obj, out), 0);
}

static fsal_status_t setattr2(struct fsal_obj_handle *obj, bool bypass, struct state_t *state,
			      struct fsal_attrlist *attrs)
{
	uint64_t began = spw_clock_ns();

	return spw_counted(SPW_COUNTED_SETATTR, began,
			   plain.setattr2(obj, bypass, state, attrs), 0);
}

static fsal_status_t readdir_(struct fsal_obj_handle *dir, fsal_cookie_t *whence, void *dir_state,
			      fsal_readdir_cb cb, attrmask_t attrmask, bool *eof)
{
	uint64_t began = spw_clock_ns();

	return spw_counted(SPW_COUNTED_READDIR, began,
			   plain.readdir(dir, whence, dir_state, cb, attrmask, eof), 0);
}

static fsal_status_t reopen2(struct fsal_obj_handle *obj, struct state_t *state,
			     fsal_openflags_t openflags)
{
	uint64_t began = spw_clock_ns();

	return spw_counted(SPW_COUNTED_OPEN, began, plain.reopen2(obj, state, openflags), 0);
}

static fsal_status_t close2(struct fsal_obj_handle *obj, struct state_t *state)
{
	uint64_t began = spw_clock_ns();

	if (state->state_type == STATE_TYPE_LOCK) /* the end of a lock closes no file */
		return plain.close2(obj, state);
	return spw_counted(SPW_COUNTED_CLOSE, began, plain.close2(obj, state), 0);
}

static fsal_status_t commit2(struct fsal_obj_handle *obj, off_t offset, size_t length)
{
	uint64_t began = spw_clock_ns();

	return spw_counted(SPW_COUNTED_COMMIT, began, plain.commit2(obj, offset, length), 0);
}

static fsal_status_t seek2(struct fsal_obj_handle *obj, struct state_t *state,
			   struct io_info *info)
{
	uint64_t began = spw_clock_ns();

	return spw_counted(SPW_COUNTED_SEEK, began, plain.seek2(obj, state, info), 0);
}

static fsal_status_t fallocate_(struct fsal_obj_handle *obj, struct state_t *state,
				uint64_t offset, uint64_t length, bool allocate)
{
	uint64_t began = spw_clock_ns();

	return spw_counted(SPW_COUNTED_ALLOCATE, began,
			   plain.fallocate(obj, state, offset, length, allocate), 0);
}

static fsal_status_t mkdir_(struct fsal_obj_handle *dir, const char *name,
			    struct fsal_attrlist *attrs, struct fsal_obj_handle **obj,
			    struct fsal_attrlist *out SPW_DIR_PARAMETERS(dir))
{
	uint64_t began = spw_clock_ns();

	return spw_counted(SPW_COUNTED_MKDIR, began,
			   plain.mkdir(dir, name, attrs, obj, out SPW_DIR_ARGUMENTS(dir)), 0);
}

static fsal_status_t mknode(struct fsal_obj_handle *dir, const char *name,
			    object_file_type_t type, struct fsal_attrlist *attrs,
			    struct fsal_obj_handle **obj,
			    struct fsal_attrlist *out SPW_DIR_PARAMETERS(dir))
{
	uint64_t began = spw_clock_ns();

	return spw_counted(SPW_COUNTED_MKNOD, began,
			   plain.mknode(dir, name, type, attrs, obj, out SPW_DIR_ARGUMENTS(dir)), 0);
}

static fsal_status_t symlink_(struct fsal_obj_handle *dir, const char *name, const char *target,
			      struct fsal_attrlist *attrs, struct fsal_obj_handle **obj,
			      struct fsal_attrlist *out SPW_DIR_PARAMETERS(dir))
{
	uint64_t began = spw_clock_ns();

	return spw_counted(
		SPW_COUNTED_SYMLINK, began,
		plain.symlink(dir, name, target, attrs, obj, out SPW_DIR_ARGUMENTS(dir)), 0);
}

static fsal_status_t readlink_(struct fsal_obj_handle *obj, struct gsh_buffdesc *content,
			       bool refresh)
{
	uint64_t began = spw_clock_ns();

	return spw_counted(SPW_COUNTED_READLINK, began, plain.readlink(obj, content, refresh), 0);
}

static fsal_status_t link_(struct fsal_obj_handle *obj, struct fsal_obj_handle *dir,
			   const char *name SPW_DIR_PARAMETERS(dir))
{
	uint64_t began = spw_clock_ns();

	return spw_counted(SPW_COUNTED_LINK, began,
			   plain.link(obj, dir, name SPW_DIR_ARGUMENTS(dir)), 0);
}

static fsal_status_t rename_(struct fsal_obj_handle *obj, struct fsal_obj_handle *old_dir,
			     const char *old_name, struct fsal_obj_handle *new_dir,
			     const char *new_name SPW_DIR_PARAMETERS(old)
				     SPW_DIR_PARAMETERS(new))
{
	uint64_t began = spw_clock_ns();

	return spw_counted(SPW_COUNTED_RENAME, began,
			   plain.rename(obj, old_dir, old_name, new_dir,
					new_name SPW_DIR_ARGUMENTS(old) SPW_DIR_ARGUMENTS(new)),
			   0);
}

static fsal_status_t unlink_(struct fsal_obj_handle *dir, struct fsal_obj_handle *obj,
			     const char *name SPW_DIR_PARAMETERS(dir))
{
	uint64_t began = spw_clock_ns();

	return spw_counted(SPW_COUNTED_REMOVE, began,
			   plain.unlink(dir, obj, name SPW_DIR_ARGUMENTS(dir)), 0);
}

static fsal_status_t getxattrs(struct fsal_obj_handle *obj, xattrkey4 *key, xattrvalue4 *value)
{
	uint64_t began = spw_clock_ns();

	return spw_counted(SPW_COUNTED_GETXATTR, began, plain.getxattrs(obj, key, value), 0);
}

static fsal_status_t setxattrs(struct fsal_obj_handle *obj, setxattr_option4 option,
			       xattrkey4 *key, xattrvalue4 *value)
{
	uint64_t began = spw_clock_ns();

	return spw_counted(SPW_COUNTED_SETXATTR, began,
			   plain.setxattrs(obj, option, key, value), 0);
}

static fsal_status_t removexattrs(struct fsal_obj_handle *obj, xattrkey4 *key)
{
	uint64_t began = spw_clock_ns();

	return spw_counted(SPW_COUNTED_SETXATTR, began, plain.removexattrs(obj, key), 0);
}

static fsal_status_t listxattrs(struct fsal_obj_handle *obj, count4 most, nfs_cookie4 *cookie,
				bool_t *eof, xattrlist4 *names)
{
	uint64_t began = spw_clock_ns();

	return spw_counted(SPW_COUNTED_LISTXATTR, began,
			   plain.listxattrs(obj, most, cookie, eof, names), 0);
}

/* Counts an OPEN. Ganesha asks for a creation by name only after the name was not found. */
static fsal_status_t open2(struct fsal_obj_handle *obj, struct state_t *state,
			   fsal_openflags_t openflags, enum fsal_create_mode createmode,
			   const char *name, struct fsal_attrlist *attrs, fsal_verifier_t verifier,
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
	ops->open2 = open2;
	ops->lookup = lookup;
	ops->getattrs = getattrs;
	ops->setattr2 = setattr2;
	ops->readdir = readdir_;
	ops->reopen2 = reopen2;
	ops->close2 = close2;
	ops->commit2 = commit2;
	ops->seek2 = seek2;
	ops->fallocate = fallocate_;
	ops->mkdir = mkdir_;
	ops->mknode = mknode;
	ops->symlink = symlink_;
	ops->readlink = readlink_;
	ops->link = link_;
	ops->rename = rename_;
	ops->unlink = unlink_;
	ops->getxattrs = getxattrs;
	ops->setxattrs = setxattrs;
	ops->removexattrs = removexattrs;
	ops->listxattrs = listxattrs;
}
