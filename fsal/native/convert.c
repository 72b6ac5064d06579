/* Conversions between Ganesha's types and the bridge's. */
#include "handle.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "util.h"

_Static_assert(sizeof(gid_t) == sizeof(uint32_t), "groups are passed through as they are");
_Static_assert((int)REGULAR_FILE == SPW_REGULAR && (int)DIRECTORY == SPW_DIRECTORY &&
	       (int)SYMBOLIC_LINK == SPW_SYMLINK, "kinds are Ganesha's numbers");

fsal_status_t spw_status(int error)
{
	switch (error) {
	case ENODATA: /* only extended attributes answer these two; Ganesha maps them differently */
		return fsalstat(ERR_FSAL_NOXATTR, error);
	case ERANGE:
		return fsalstat(ERR_FSAL_XATTR2BIG, error);
	default:
		return fsalstat(posix2fsal_error(error), error);
	}
}

struct spw_request spw_request_for(uint64_t ino, const char *name)
{
	struct spw_request request = {
		.ino = ino,
		.name = name,
		.name_len = name ? (uint32_t)strlen(name) : 0,
	};

	if (op_ctx != NULL) {
		request.uid = op_ctx->creds.caller_uid;
		request.gid = op_ctx->creds.caller_gid;
		request.group_count = op_ctx->creds.caller_glen;
		request.groups = op_ctx->creds.caller_garray;
		request.client = spw_caller();
		request.client_len = (uint32_t)strlen(request.client);
	}
	return request;
}

static struct timespec timespec_of(int64_t ns)
{
	struct timespec time = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };

	if (time.tv_nsec < 0) {
		time.tv_nsec += 1000000000;
		time.tv_sec--;
	}
	return time;
}

struct spw_setattr spw_setattr_from(const struct fsal_attrlist *attrs)
{
	struct spw_setattr set = { 0 };
	struct timespec clock;

	clock_gettime(CLOCK_REALTIME, &clock);
	if (FSAL_TEST_MASK(attrs->valid_mask, ATTR_MODE)) {
		set.mask |= SPW_SET_MODE;
		set.mode = attrs->mode;
	}
	if (FSAL_TEST_MASK(attrs->valid_mask, ATTR_OWNER)) {
		set.mask |= SPW_SET_UID;
		set.uid = (uint32_t)attrs->owner;
	}
	if (FSAL_TEST_MASK(attrs->valid_mask, ATTR_GROUP)) {
		set.mask |= SPW_SET_GID;
		set.gid = (uint32_t)attrs->group;
	}
	if (FSAL_TEST_MASK(attrs->valid_mask, ATTR_ATIME | ATTR_ATIME_SERVER)) {
		set.mask |= SPW_SET_ATIME;
		set.atime_ns = FSAL_TEST_MASK(attrs->valid_mask, ATTR_ATIME)
				       ? spw_ns(&attrs->atime) : spw_ns(&clock);
	}
	if (FSAL_TEST_MASK(attrs->valid_mask, ATTR_MTIME | ATTR_MTIME_SERVER)) {
		set.mask |= SPW_SET_MTIME;
		set.mtime_ns = FSAL_TEST_MASK(attrs->valid_mask, ATTR_MTIME)
				       ? spw_ns(&attrs->mtime) : spw_ns(&clock);
	}
	return set;
}

void spw_attrs_out(const struct spw_attr *attr, struct fsal_attrlist *out)
{
	if (out == NULL)
		return;
	/* Every answer has all attributes: an incomplete list would be cached as complete. */
	out->supported = SPW_ATTRIBUTES;
	out->valid_mask = SPW_ATTRIBUTES;
	out->type = (object_file_type_t)attr->kind;
	out->filesize = attr->size;
	out->fsid.major = spw_python.volume_id >> 32;
	out->fsid.minor = spw_python.volume_id & UINT32_MAX;
	out->fileid = attr->ino;
	out->mode = attr->mode;
	out->numlinks = attr->nlink;
	out->owner = attr->uid;
	out->group = attr->gid;
	out->rawdev.major = (dev_t)(attr->rdev >> 32);
	out->rawdev.minor = (dev_t)(attr->rdev & UINT32_MAX);
	out->atime = timespec_of(attr->atime_ns);
	out->creation = timespec_of(attr->btime_ns);
	out->ctime = timespec_of(attr->ctime_ns);
	out->mtime = timespec_of(attr->mtime_ns);
	out->spaceused = attr->used;
	out->change = attr->change;
	out->generation = attr->generation;
}
