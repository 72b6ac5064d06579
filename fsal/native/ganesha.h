/* Includes Ganesha's headers, and checks that they are those of the installed Ganesha. */
#ifndef SPILLWAY_GANESHA_H
#define SPILLWAY_GANESHA_H

#include "config.h"

#include "fsal.h"
#include "fsal_convert.h"
#include "FSAL/fsal_commonlib.h"
#include "FSAL/fsal_config.h"
#include "fsal_handle_syscalls.h"
#include "fsal_types.h"
#include "FSAL/fsal_init.h"
#include "nfs_core.h"
#include "nfs_exports.h"
#include "sal_data.h"

/* Debian builds Ganesha with its own switches. A plugin built with others would read wrong fields.
 * These are the sizes in Debian's own builds. */
#if FSAL_MAJOR_VERSION == 11 /* nfs-ganesha 4.3, Debian 12 */
_Static_assert(sizeof(struct state_t) == 216, "state_t");
_Static_assert(sizeof(struct fsal_module) == 352, "fsal_module");
_Static_assert(sizeof(struct fsal_obj_ops) == 424, "fsal_obj_ops");
_Static_assert(sizeof(struct req_op_context) == 232, "req_op_context");
_Static_assert(sizeof(struct nfs_param) == 512, "nfs_param");
#elif FSAL_MAJOR_VERSION == 13 /* nfs-ganesha 6.5, Debian 13 */
_Static_assert(sizeof(struct state_t) == 224, "state_t");
_Static_assert(sizeof(struct fsal_module) == 368, "fsal_module");
_Static_assert(sizeof(struct fsal_obj_ops) == 432, "fsal_obj_ops");
_Static_assert(sizeof(struct req_op_context) == 256, "req_op_context");
_Static_assert(sizeof(struct nfs_param) == 664, "nfs_param");
#else
#error "this source knows the FSAL API 11 (Ganesha 4.x) and 13 (Ganesha 6.x)"
#endif
_Static_assert(sizeof(struct fsal_attrlist) == 248, "fsal_attrlist");
_Static_assert(sizeof(struct fsal_obj_handle) == 144, "fsal_obj_handle");
_Static_assert(sizeof(struct fsal_export) == 360, "fsal_export");
_Static_assert(sizeof(struct export_ops) == 272, "export_ops");
_Static_assert(sizeof(struct fsal_up_vector) == 184, "fsal_up_vector");

#endif
