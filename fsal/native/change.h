/* Changes of the namespace. C keeps the attributes and names that their answers tell. */
#ifndef SPILLWAY_CHANGE_H
#define SPILLWAY_CHANGE_H

#include <errno.h>
#include <stdbool.h>

#include "ganesha.h"

#include "bridge.h"
#include "handle.h"
#include "inode.h"

/* Sets who is told of the links that changes remove. NULL: there is none. */
void spw_change_tell(const struct fsal_up_vector *up);

/* Removes the link that names a checkpoint, if a change was refused for it (gateway/db/named.py).
 * rc: the result of the change. Returns whether the caller must try again. */
bool spw_unname(int rc, const struct spw_reply *told);

/* Whether a change that was answered with an error may have been made all the same. After EAGAIN it
 * was not (gateway/db/writer.py). rc: an errno. */
static inline bool spw_is_in_doubt(int rc)
{
	return rc == EIO || rc == ENOSPC || rc == ESTALE;
}

/* Calls a change of the namespace, and keeps the attributes of the inodes that it touched. Links
 * that name the checkpoint which it changes are removed first. Returns 0 or the errno. */
int spw_change(enum spw_op op, const struct spw_request *request, struct spw_reply *reply);

/* Sets what is in request->set. Returns 0 or an errno. */
int spw_set_attributes(struct spw_inode *inode, const struct spw_request *request,
		       struct spw_reply *reply);

/* Takes suid and sgid from a file whose bytes a user other than root changed (POSIX write). */
void spw_drop_privileges(struct spw_handle *self);

#endif
