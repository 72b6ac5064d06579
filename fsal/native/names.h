/* Names: the operations on them, the changes of the namespace, and what is kept of names here and
 * in Ganesha's own cache. What is kept here (dentry.c, fresh.c) uses neither Ganesha nor Python.
 */
#ifndef SPILLWAY_NAMES_H
#define SPILLWAY_NAMES_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "bridge.h"
#include "inode.h"

struct fsal_obj_ops;
struct fsal_up_vector;

/* ---- dentry.c ---- */

/* A cache of names, as the namespace told them lately: the inode of each, or that it is absent.
 *
 * Ganesha forgets all names of a directory when it learns of a new mtime, so after each REMOVE. The
 * next REMOVE would have to ask the namespace which inode it removes. And before it creates a name,
 * Ganesha looks it up twice. No other process changes names that clients see, and every change
 * passes here twice, before and after its call. So an answer is right if no change of its name was
 * under way at any time since the question: such a change may be committed, and other clients may
 * see its directory as it is now, before its answer passes here. */

/* Returns the present time, in counts of events. Call it before a look-up or a listing. */
uint64_t spw_dentry_asked(void);

/* In the place of an inode number: the name is absent. */
#define SPW_NO_INO UINT64_MAX

/* Keeps the inode of a name, or SPW_NO_INO, from an answer. began: result of spw_dentry_asked()
 * before the call. */
void spw_dentry_learn(uint64_t dir, const char *name, uint32_t length, uint64_t ino, uint64_t began);

/* Forgets the names that a change touches. Call it before every change. Returns when it began. */
uint64_t spw_dentry_change(enum spw_op op, const struct spw_request *request);

/* Keeps or forgets the names that a change touched. Call it after every change, once for each
 * spw_dentry_change(), also after a change that failed (reply: NULL then). began: its result. */
void spw_dentry_changed(enum spw_op op, const struct spw_request *request,
			const struct spw_reply *reply, uint64_t began);

/* Returns the inode that is known to have a name, or 0. */
uint64_t spw_dentry_find(uint64_t dir, const char *name, uint32_t length);

/* Returns whether a name is known to be absent for clients. The gateway finds more names. */
bool spw_dentry_lacks(uint64_t dir, const char *name, uint32_t length);

/* ---- fresh.c ---- */

/* A record of the names that directories made since the start cannot have.
 *
 * Ganesha looks a name up twice before it creates it, and once before it renames something to it.
 * The name is nearly always absent, and to ask the namespace would cost more than the creation.
 * Every name in a directory that this process made was made by a call that passed here. So a name
 * that never passed here is absent. Nothing is known of older directories. */

/* Returns the present time, in counts of events. Call it before a directory is made. */
uint64_t spw_fresh_begin(void);

/* Notes a new, empty directory. began: result of spw_fresh_begin(). If another call may have made a
 * name in the directory since, nothing is noted. */
void spw_fresh_made(uint64_t dir, uint64_t began);

/* Remembers the name that a change makes, if it makes one. Call it before every change, whether or
 * not the change succeeds. */
void spw_fresh_change(enum spw_op op, const struct spw_request *request);

/* Forgets the name or the directory that a change took away. Call it after every change that
 * succeeded. */
void spw_fresh_changed(enum spw_op op, const struct spw_request *request,
		       const struct spw_reply *reply);

/* Returns whether a directory is known not to have a name. */
bool spw_fresh_lacks(uint64_t dir, const char *name, uint32_t length);

/* ---- change.c ---- */

/* Changes of the namespace. C keeps the attributes and names that their answers tell. */

/* Sets who is told of the links that changes remove. NULL: there is none. */
void spw_change_tell(const struct fsal_up_vector *up);

/* Removes the link that names a checkpoint, if a change was refused for it
 * (gateway/db/latest_links.py). rc: the result of the change. Returns whether the caller must try
 * again. */
bool spw_unname(int rc, const struct spw_reply *told);

/* Whether a change that was answered with an error may have been made all the same. After EAGAIN it
 * was not (gateway/db/writer.py). rc: an errno. */
static inline bool spw_is_indeterminate(int rc)
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
void spw_drop_privileges(struct spw_inode *inode);

/* ---- names.c ---- */

/* The operations that Ganesha calls to look up, list, make, link, rename and remove names. */

/* Finds the inode of a name. It asks the namespace unless name and inode are known here. Returns 0
 * or the errno. */
int spw_find(const struct spw_request *request, struct spw_attr *attr);

/* Fills the operations on names. */
void spw_names_ops(struct fsal_obj_ops *ops);

/* ---- upcall.c ---- */

/* Tells Ganesha's own cache what changed. */

/* Makes Ganesha drop what it knows of an inode: attributes, names, listings; with is_moved also the
 * directory above a directory. Inside an operation that Ganesha called, only for an inode that the
 * operation is not about: Ganesha may hold the locks of those. */
void spw_upcall_forget(const struct fsal_up_vector *up, uint64_t ino, uint64_t generation,
		       bool is_moved);

/* Does the same, as for an inode that moved, if Ganesha has a handle of the inode. If it has none,
 * or for 0, there is nothing to forget. */
void spw_upcall_forget_known(const struct fsal_up_vector *up, uint64_t ino);

/* Makes Ganesha ask for attributes or names of an inode before it uses them again. An operation may
 * call it for its own inode, but not while Ganesha asks for attributes or changes the inode's
 * names. Another thread may be about to fill the entry with what it asked for before. what:
 * FSAL_UP_INVALIDATE_ATTRS or _CONTENT. */
void spw_upcall_invalidate(const struct fsal_up_vector *up, uint64_t ino, uint64_t generation,
			   uint32_t what);

/* Makes Ganesha drop its entry of an inode if nothing uses the entry: no open file and no running
 * operation. Must not be called inside an operation that Ganesha called. */
void spw_upcall_release(const struct fsal_up_vector *up, uint64_t ino, uint64_t generation);

/* ---- release.c ---- */

/* Makes Ganesha let go of files that lost their last name over the control socket.
 *
 * A file without a name is reclaimed with its last handle, and an entry of Ganesha's cache is a
 * handle. Ganesha drops the entry of a file by itself only when a client removes the name. */

/* Drops the entry of a file without a name, now or after its last close. Must not be called inside
 * an operation that Ganesha called. */
void spw_release(const struct fsal_up_vector *up, uint64_t ino);

/* Tries again for files that were in use. Call it once a second. */
void spw_release_again(const struct fsal_up_vector *up);

/* Forgets the files that are still in use: the next start reclaims them. */
void spw_release_end(void);

/* ---- stale_names.c ---- */

/* Names that Ganesha adds to its cache when another client may have changed them already.
 *
 * After the plugin made a name or found it for an OPEN, Ganesha adds it to its names of the
 * directory, and holds no lock until then (mdcache_file.c, mdcache_open2; mdcache_handle.c,
 * mdcache_link and others). If another client replaces, moves or removes the name meanwhile,
 * Ganesha keeps leading clients to the old file, and what they write there is lost. Next, the same
 * thread asks for the attributes of the directory (mdcache_refresh_attrs_no_invalidate).
 *
 * At that time Ganesha holds locks that the upcall may need (mdcache_helpers.c, mdc_check_mapping).
 * So a thread that holds none makes the upcall. It runs while there is an export. */

/* Starts and ends the thread. Returns 0 or an errno. */
int spw_stale_names_start(const struct fsal_up_vector *up);
void spw_stale_names_stop(void);

/* Notes the name that this thread is about to answer, and the inode that has it. */
void spw_stale_names_note(uint64_t directory, const char *name, uint64_t ino);

/* Has Ganesha forget the names of a directory if the last name that this thread answered there may
 * be another inode's by now. Call it when Ganesha asks for the directory's attributes. */
void spw_stale_names_check(uint64_t directory, uint64_t generation);

#endif
