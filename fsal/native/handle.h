/* Objects as Ganesha sees them: their handles, the conversions of its types, and the table of
 * operations on an object. The operations on names are in names.h, those on opens in openstate.h.
 */
#ifndef SPILLWAY_HANDLE_H
#define SPILLWAY_HANDLE_H

#include <stdint.h>
#include <string.h>

#include "ganesha.h"

#include "client_mgr.h"

#include "bridge.h"
#include "inode.h"
#include "statistics.h"

/* ---- convert.c ---- */

/* Conversions between Ganesha's types and the bridge's: statuses, requests, attributes. */

/* The attributes that every inode has. */
#define SPW_ATTRIBUTES \
	((attrmask_t)(ATTRS_POSIX | ATTR_CREATION | ATTR_GENERATION | ATTR4_XATTR))

/* Returns the errno of the namespace or of a system call as a status of Ganesha. */
fsal_status_t spw_status(int error);

/* Returns a request with the credentials of the current operation's caller. */
struct spw_request spw_request_for(uint64_t ino, const char *name);

/* Returns the attributes to set, from Ganesha's list. A *_SERVER time becomes the current time. */
struct spw_setattr spw_setattr_from(const struct fsal_attrlist *attrs);

/* Fills attributes for Ganesha; out may be NULL. */
void spw_attrs_out(const struct spw_attr *attr, struct fsal_attrlist *out);

/* ---- who asks in the call that Ganesha makes ---- */

/* Returns the address of a client as people write it: Ganesha listens with IPv6, where an address of
 * IPv4 has a prefix (RFC 4291 section 2.5.5.2). */
static inline const char *spw_address_of(const struct gsh_client *client)
{
	static const char mapped[] = "::ffff:";
	const char *address = client->hostaddr_str, *rest = address + sizeof(mapped) - 1;

	return strncmp(address, mapped, sizeof(mapped) - 1) == 0 && strchr(rest, '.') ? rest : address;
}

/* Returns the address of the client, or an empty one if none asks: the gateway itself does, or a
 * thread that has the call no more. */
static inline const char *spw_caller(void)
{
	return op_ctx != NULL && op_ctx->client != NULL ? spw_address_of(op_ctx->client) : "";
}

/* Returns the entry of the client, or NULL if none asks. */
static inline struct spw_client *spw_calling(void)
{
	return spw_client_of(spw_caller());
}

/* ---- handle.c ---- */

/* The handles of an inode: Ganesha's object handle, and the file handle that a client has. */

/* The file handle that a client has. It is also the key of Ganesha's cache. The volume is part of
 * it because all exports of a module share that cache. */
struct spw_fh {
	uint32_t magic;
	uint32_t version;
	uint64_t volume_id;
	uint64_t ino;
	uint64_t generation;
};

#define SPW_FH_MAGIC 0x53505759u
#define SPW_FH_VERSION 1u

struct spw_handle {
	struct fsal_obj_handle obj;
	struct spw_fh fh;
	struct spw_inode *inode;
};

static inline struct spw_handle *spw_handle_of(const struct fsal_obj_handle *obj)
{
	return container_of(obj, struct spw_handle, obj);
}

/* The operations of every object. */
extern struct fsal_obj_ops spw_obj_ops;

/* Makes a handle for an inode whose attributes the namespace just answered. asked: result of
 * spw_asked() before the call. */
struct fsal_obj_handle *spw_handle_new(const struct spw_attr *attr, uint64_t asked);

/* Fills the attributes of an object as they are now, or marks that they are not known. out may be
 * NULL. */
void spw_current_attrs_out(struct fsal_obj_handle *obj, struct fsal_attrlist *out);

/* Makes the handle and, when wanted, the attributes of an answer. */
void spw_answer(const struct spw_attr *attr, uint64_t asked, struct fsal_obj_handle **obj,
		struct fsal_attrlist *out);

/* ---- counted.c ---- */

/* Operations of Ganesha that are counted: each calls the plugin's own one. */

/* Counts an operation that is about to be answered with a status. Afterwards its client may see the
 * count. began_ns: spw_clock_ns() when it began; bytes: read or written, if it is no error. Returns the status. */
fsal_status_t spw_counted(enum spw_counted kind, uint64_t began_ns, fsal_status_t status,
			  uint64_t bytes);

/* Puts a counted operation before each of a table, except READ and WRITE, which are counted when
 * they are answered (io.c). */
void spw_counted_ops(struct fsal_obj_ops *ops);

/* ---- io.c ---- */

/* The operations that Ganesha calls to read and to write. They do not use Python. */

/* Fills the operations on bytes. */
void spw_io_ops(struct fsal_obj_ops *ops);

/* ---- xattr.c ---- */

/* Operations on extended attributes (RFC 8276). Only NFSv4.2 clients can ask for them. */

/* Fills the operations on extended attributes. */
void spw_xattr_ops(struct fsal_obj_ops *ops);

/* ---- ops.c ---- */

/* The operations that Ganesha calls on an object of any kind. */

/* Fills the operations of every object, once. */
void spw_obj_ops_fill(void);

#endif
