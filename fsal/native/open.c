/* Opens of files: creation, shares, upgrades, truncation, closing. The descriptor is the
 * inode's. */
#include "openstate.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "FSAL/access_check.h"

#include "bridge.h"
#include "bytes.h"
#include "handle.h"
#include "names.h"
#include "seal.h"
#include "util.h"

#define REFUSED_MS 2000u /* how long opens of a file without a name get "wait" */

/* Begins the writer of an open. A truncation of an absent file must not wait for its bytes. */
static int begin_writer(struct spw_inode *inode, const struct spw_attr *created, bool truncates)
{
	return truncates ? spw_writer_begin_emptied(inode) : spw_writer_begin(inode, created);
}

/* ---- open states ---- */

/* Enters the open of a state: share, descriptor, writer, truncation. It does all of them or none.
 * is_new: this open made the file; created: the attributes of a file that the namespace just made
 * open for writing, or NULL. */
static fsal_status_t state_open(struct spw_inode *inode, struct state_t *state,
				fsal_openflags_t openflags, bool is_new,
				const struct spw_attr *created, uint64_t size)
{
	bool writes = (openflags & FSAL_O_WRITE) != 0;
	bool truncates = (openflags & FSAL_O_TRUNC) && !is_new;
	fsal_status_t status = spw_share_change(inode, FSAL_O_CLOSED, openflags);
	int rc = 0;

	if (FSAL_IS_ERROR(status))
		return status;
	spw_fd_hold(inode);
	if (writes)
		rc = begin_writer(inode, created, truncates);
	if (rc == 0 && (size > 0 || truncates)) {
		rc = spw_truncate(inode, size);
		if (rc != 0 && writes)
			spw_writer_end(inode);
	}
	if (rc != 0) {
		spw_fd_release(inode);
		(void)spw_share_change(inode, openflags, FSAL_O_CLOSED);
		return spw_status(rc);
	}
	spw_state_opened(state, inode, openflags);
	if (writes)
		spw_state_give_writer(state);
	return status;
}

/* Opens a file. An open without a state keeps nothing open; it may only truncate. */
static fsal_status_t open_file(struct spw_inode *inode, struct state_t *state,
			       fsal_openflags_t openflags, bool is_new,
			       const struct spw_attr *created, uint64_t size)
{
	fsal_status_t status;

	if (state != NULL)
		return state_open(inode, state, openflags, is_new, created, size);
	if (created != NULL) {
		int rc = spw_writer_begin(inode, created);

		if (rc == 0)
			spw_writer_end(inode);
		return spw_status(rc);
	}
	status = spw_share_check(inode, openflags, false);
	if (!FSAL_IS_ERROR(status) && (openflags & FSAL_O_TRUNC))
		status = spw_status(spw_truncate(inode, 0));
	return status;
}

/* Returns 0 if an exclusive creation with this verifier made the file, EEXIST if another one did, or
 * the errno of the namespace. */
static int require_verifier(uint64_t ino, const char *verifier)
{
	struct spw_request request = { .ino = ino };
	struct spw_reply reply;
	int rc = spw_call(SPW_VERIFIER, &request, &reply);

	if (rc == 0 && (reply.count != 1 ||
			memcmp(reply.verifier, verifier, sizeof(reply.verifier)) != 0))
		rc = EEXIST;
	return rc;
}

static bool check_verifier(struct fsal_obj_handle *obj, fsal_verifier_t verifier)
{
	return require_verifier(spw_handle_of(obj)->fh.ino, verifier) == 0;
}

/* Refuses to open a file without a name: what is written would be deleted with the last close. A client
 * that opened a name tries again, and gets the file that has the name by now. A client that opened the
 * file itself (CLAIM_FH) would try for ever. Returns 0 or an errno. */
static int refuse_nameless(struct spw_inode *inode)
{
	uint64_t now = spw_clock_ms(), first = 0;

	if (!spw_is_nameless(inode))
		return 0;
	if (atomic_compare_exchange_strong(&inode->refused_ms, &first, now))
		first = now;
	/* Another thread may have read the clock later, and been the first. */
	return now < first + REFUSED_MS ? EAGAIN : ENOENT;
}

/* Has the log of names note an open that is not the creation of the file. Ganesha has checked the
 * permission, unless another client made the name since Ganesha looked it up. */
static void note_open(struct fsal_obj_handle *obj, fsal_openflags_t openflags)
{
	struct spw_request request;
	struct spw_reply reply;

	if (!spw_python.notes_opens || (openflags & FSAL_O_RECLAIM))
		return;
	request = spw_request_for(spw_handle_of(obj)->fh.ino, NULL);
	if (openflags & FSAL_O_WRITE)
		request.flags |= SPW_FOR_WRITING;
	(void)spw_call(SPW_NOTE_OPEN, &request, &reply);
}

static fsal_status_t open_by_handle(struct fsal_obj_handle *obj, struct state_t *state,
				    fsal_openflags_t openflags, enum fsal_create_mode createmode,
				    fsal_verifier_t verifier, struct fsal_attrlist *out,
				    bool *caller_perm_check)
{
	struct spw_handle *self = spw_handle_of(obj);
	fsal_status_t status;
	int rc;

	if (obj->type != REGULAR_FILE)
		return fsalstat(obj->type == DIRECTORY ? ERR_FSAL_ISDIR : ERR_FSAL_SYMLINK, 0);
	rc = refuse_nameless(self->inode);
	if (rc == 0 && createmode >= FSAL_EXCLUSIVE)
		rc = require_verifier(self->fh.ino, verifier);
	if (rc != 0)
		return spw_status(rc);
	status = open_file(self->inode, state, openflags, false, NULL, 0);
	if (FSAL_IS_ERROR(status))
		return status;
	note_open(obj, openflags);
	*caller_perm_check = true;
	spw_current_attrs_out(obj, out);
	return status;
}

/* Removes a file that could not be opened after it was made. Another inode that has the name by now
 * stays, and so does the file if another client has changed it. */
static void undo_create(uint64_t parent, const char *name, const struct spw_attr *created)
{
	struct spw_request request = spw_request_for(parent, name);
	struct spw_reply reply;

	request.uid = 0;
	request.ino2 = created->ino;
	request.cookie = created->change;
	(void)spw_change(SPW_REMOVE, &request, &reply);
}

/* Seals a file that was made open for writing and could not be opened. It has no writer: without a
 * seal it would not be drained before the next start. */
static void settle_refused(struct spw_inode *inode, const struct spw_attr *created,
			   fsal_openflags_t openflags)
{
	if (created != NULL && (openflags & FSAL_O_WRITE) && spw_writer_begin(inode, created) == 0)
		spw_writer_end(inode);
}

/* Checks the permission to write before the open. Ganesha checks an open by name only after it, and
 * a second open of the same owner never: a client without permission would have emptied the
 * file. */
static fsal_status_t check_write(struct fsal_obj_handle *obj, fsal_openflags_t openflags,
				 bool is_owners)
{
	if (openflags & FSAL_O_RECLAIM) /* the open was checked before the restart */
		return fsalstat(ERR_FSAL_NO_ERROR, 0);
	return fsal_test_access(obj, FSAL_WRITE_ACCESS, NULL, NULL, is_owners);
}

/* Opens a file that an OPEN named. created: attributes of the file if the namespace just made it,
 * or NULL. */
static fsal_status_t open_made(struct fsal_obj_handle *obj, struct state_t *state,
			       fsal_openflags_t openflags, const struct spw_attr *created,
			       uint64_t size, bool is_owners)
{
	struct spw_inode *inode = spw_handle_of(obj)->inode;
	fsal_status_t status = { ERR_FSAL_NO_ERROR, 0 };
	bool is_open = created != NULL && (openflags & FSAL_O_WRITE);

	if (created != NULL && !is_open)
		status = spw_status(spw_made_closed(inode, created));
	else if (created == NULL && (openflags & FSAL_O_TRUNC))
		status = check_write(obj, openflags, is_owners);
	if (FSAL_IS_ERROR(status))
		return status;
	return open_file(inode, state, openflags, created != NULL, is_open ? created : NULL, size);
}

/* Decides about a creation whose name exists. Returns 0 to open the file, or the errno. */
static int judge_existing(const struct spw_attr *attr, enum fsal_create_mode createmode,
			  fsal_verifier_t verifier)
{
	if (createmode == FSAL_GUARDED)
		return EEXIST;
	return createmode >= FSAL_EXCLUSIVE ? require_verifier(attr->ino, verifier) : 0;
}

/* Makes the file, or finds the file that has the name. *created tells which. */
static int create_or_find(uint64_t parent, const char *name, fsal_openflags_t openflags,
			  enum fsal_create_mode createmode, struct fsal_attrlist *attrs_in,
			  fsal_verifier_t verifier, struct spw_reply *reply, bool *created)
{
	struct spw_request request = spw_request_for(parent, name);
	int rc = EEXIST;

	*created = false;
	if (createmode != FSAL_NO_CREATE) {
		request.set = spw_setattr_from(attrs_in);
		if (openflags & FSAL_O_WRITE)
			request.flags |= SPW_FOR_WRITING;
		if (createmode >= FSAL_EXCLUSIVE) {
			request.flags |= SPW_HAS_VERIFIER;
			memcpy(request.verifier, verifier, sizeof(request.verifier));
		}
		rc = spw_change(SPW_CREATE, &request, reply);
		*created = rc == 0;
	}
	if (rc == EEXIST) {
		rc = spw_find(&request, &reply->attr);
		if (rc == 0)
			rc = judge_existing(&reply->attr, createmode, verifier);
	}
	return rc;
}

static fsal_status_t open2(struct fsal_obj_handle *obj, struct state_t *state,
			   fsal_openflags_t openflags, enum fsal_create_mode createmode,
			   const char *name, struct fsal_attrlist *attrs_in,
			   fsal_verifier_t verifier, struct fsal_obj_handle **new_obj,
			   struct fsal_attrlist *out,
			   bool *caller_perm_check SPW_DIR_PARAMETERS(parent))
{
	uint64_t parent = spw_handle_of(obj)->fh.ino;
	uint64_t asked = spw_asked();
	struct fsal_obj_handle *made;
	struct spw_reply reply;
	fsal_status_t status;
	uint64_t size = 0;
	bool created;
	int rc;

	if (name == NULL)
		return open_by_handle(obj, state, openflags, createmode, verifier, out,
				      caller_perm_check);
	rc = create_or_find(parent, name, openflags, createmode, attrs_in, verifier, &reply,
			    &created);
	if (rc != 0)
		return spw_status(rc);
	if (reply.attr.kind != SPW_REGULAR)
		return fsalstat(reply.attr.kind == SPW_DIRECTORY ? ERR_FSAL_ISDIR
								 : ERR_FSAL_SYMLINK, 0);
	made = spw_handle_new(&reply.attr, asked);
	if (created && FSAL_TEST_MASK(attrs_in->valid_mask, ATTR_SIZE))
		size = attrs_in->filesize;
	status = open_made(made, state, openflags, created ? &reply.attr : NULL, size,
			   createmode >= FSAL_EXCLUSIVE);
	if (FSAL_IS_ERROR(status)) {
		settle_refused(spw_handle_of(made)->inode, created ? &reply.attr : NULL, openflags);
		made->obj_ops->release(made);
		/* If another client's share denied the open, the file belongs to that client
		 * now. */
		if (created && status.major != ERR_FSAL_SHARE_DENIED)
			undo_create(parent, name, &reply.attr);
		/* The name was removed meanwhile. Ganesha would take STALE for the directory's. */
		return status.major == ERR_FSAL_STALE ? spw_status(EAGAIN) : status;
	}
	if (!created)
		note_open(made, openflags);
	spw_stale_names_note(parent, name, reply.attr.ino);
	spw_current_attrs_out(made, out);
	*caller_perm_check = !created;
	*new_obj = made;
	return status;
}

/* Returns whether an open is changed by an OPEN_DOWNGRADE, and not by an OPEN. */
static bool is_downgrade(fsal_openflags_t old, fsal_openflags_t openflags)
{
	return (old & ~openflags & FSAL_O_RDWR) != 0;
}

/* Changes what an open may do. */
static fsal_status_t change_open(struct fsal_obj_handle *obj, struct state_t *state,
				 fsal_openflags_t openflags)
{
	struct spw_inode *inode = spw_handle_of(obj)->inode;
	struct spw_state *self = spw_state_of(state);
	fsal_openflags_t old = self->openflags;
	bool wrote = (old & FSAL_O_WRITE) && atomic_load(&self->closing.writes);
	bool writes = (openflags & FSAL_O_WRITE) != 0;
	fsal_status_t status = { ERR_FSAL_NO_ERROR, 0 };
	int rc = 0;

	if ((writes && !wrote) || (openflags & FSAL_O_TRUNC))
		status = check_write(obj, openflags, false);
	if (!FSAL_IS_ERROR(status))
		status = spw_share_change(inode, old, openflags);
	if (FSAL_IS_ERROR(status))
		return status;
	if (self->inode == NULL)
		spw_fd_hold(inode);
	if (writes && !wrote)
		rc = begin_writer(inode, NULL, openflags & FSAL_O_TRUNC);
	if (rc == 0 && (openflags & FSAL_O_TRUNC)) {
		rc = spw_truncate(inode, 0);
		if (rc != 0 && writes && !wrote)
			spw_writer_end(inode);
	}
	if (rc != 0) {
		if (self->inode == NULL)
			spw_fd_release(inode);
		(void)spw_share_change(inode, openflags, old);
		return spw_status(rc);
	}
	spw_state_opened(state, inode, openflags);
	if (!is_downgrade(old, openflags))
		note_open(obj, openflags);
	if (writes && !wrote)
		spw_state_give_writer(state);
	else if (!writes)
		spw_state_end_writer(state);
	return status;
}

static fsal_status_t reopen2(struct fsal_obj_handle *obj, struct state_t *state,
			     fsal_openflags_t openflags)
{
	struct spw_state *self = spw_state_of(state);
	bool is_listed = self->inode != NULL;
	fsal_status_t status;

	if (is_listed &&
	    !spw_opening_again(&self->opening, is_downgrade(self->openflags, openflags)))
		return spw_status(EAGAIN);
	status = change_open(obj, state, openflags);
	if (is_listed && FSAL_IS_ERROR(status))
		spw_opening_failed(&self->opening);
	return status;
}

static fsal_openflags_t status2(struct fsal_obj_handle *obj, struct state_t *state)
{
	(void)obj;
	return spw_state_of(state)->openflags;
}

static fsal_status_t close2(struct fsal_obj_handle *obj, struct state_t *state)
{
	if (state->state_type == STATE_TYPE_LOCK)
		spw_lock_forgotten(spw_handle_of(obj)->fh.ino, state->stateid_other);
	spw_state_closed(state);
	spw_state_deleted(state);
	return fsalstat(ERR_FSAL_NO_ERROR, 0);
}

/* The object itself has no descriptor. Any other answer would spoil Ganesha's count. */
static fsal_status_t close_(struct fsal_obj_handle *obj)
{
	(void)obj;
	return fsalstat(ERR_FSAL_NOT_OPENED, 0);
}

void spw_open_ops(struct fsal_obj_ops *ops)
{
	ops->open2 = open2;
	ops->reopen2 = reopen2;
	ops->status2 = status2;
	ops->close2 = close2;
	ops->close = close_;
	ops->check_verifier = check_verifier;
}
