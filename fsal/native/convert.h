/* Between Ganesha's types and the bridge's: statuses, requests, attributes. */
#ifndef SPILLWAY_CONVERT_H
#define SPILLWAY_CONVERT_H

#include <stdint.h>

#include "bridge.h"
#include "ganesha.h"

/* The attributes that every inode has. */
#define SPW_ATTRIBUTES \
	((attrmask_t)(ATTRS_POSIX | ATTR_CREATION | ATTR_GENERATION | ATTR4_XATTR))

/* The answer of the namespace or of a system call, as Ganesha wants it. */
fsal_status_t spw_status(int error);

/* A request in the name of the caller of the current operation. */
struct spw_request spw_request_for(uint64_t ino, const char *name);

/* The attributes to set, from Ganesha's list; *_SERVER times become the time of now. */
struct spw_setattr spw_setattr_from(const struct fsal_attrlist *attrs);

/* Fills attributes for Ganesha; out may be NULL. */
void spw_attrs_out(const struct spw_attr *attr, struct fsal_attrlist *out);

#endif
