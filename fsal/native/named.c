/* Makes Ganesha forget names that another client changed before they were in its cache. */
#include "named.h"

#include <limits.h>
#include <string.h>

#include "dentry.h"
#include "upcall.h"

/* The last name that this thread answered. directory 0: none, or it was checked. */
static _Thread_local struct {
	uint64_t directory;
	uint64_t ino;
	char name[NAME_MAX + 1];
} last;

void spw_named(uint64_t directory, const char *name, uint64_t ino)
{
	last.directory = directory;
	last.ino = ino;
	strncpy(last.name, name, NAME_MAX); /* the namespace refuses longer names */
}

void spw_named_check(const struct spw_handle *directory)
{
	if (last.directory != directory->fh.ino)
		return;
	last.directory = 0;
	if (spw_dentry_find(directory->fh.ino, last.name, (uint32_t)strlen(last.name)) != last.ino)
		spw_upcall_doubt(op_ctx->fsal_export->up_ops, directory->fh.ino,
				 directory->fh.generation, FSAL_UP_INVALIDATE_CONTENT);
}
