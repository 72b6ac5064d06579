/* Conversions between Ganesha's types and the bridge's: statuses, requests, attributes. */
#ifndef SPILLWAY_CONVERT_H
#define SPILLWAY_CONVERT_H

#include <stdint.h>

#include "bridge.h"
#include "ganesha.h"

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

#endif
