/* Ganesha's headers, and in what the releases of its API differ. */
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

/* ---- releases ---- */

/* Hides in what the releases of Ganesha's API differ: 11 (Ganesha 4.3) and 13 (Ganesha 6.5). How
 * states are made and freed is in openstate.c. */

/* Parameters and arguments for the attributes of a changed directory, before and after. API 13 lets
 * an operation tell them with its answer; we leave them empty, so Ganesha reads them itself. */
#if FSAL_MAJOR_VERSION == 11
#define SPW_DIR_PARAMETERS(dir)
#define SPW_DIR_ARGUMENTS(dir)
#else
#define SPW_DIR_PARAMETERS(dir)                                       \
	, struct fsal_attrlist *dir##_before __attribute__((unused)), \
		struct fsal_attrlist *dir##_after __attribute__((unused))
#define SPW_DIR_ARGUMENTS(dir) , dir##_before, dir##_after
#endif

/* The lock over a module's lists of exports and handles. */
#if FSAL_MAJOR_VERSION == 11
#define SPW_MODULE_LOCK(module) (&(module)->lock)
#else
#define SPW_MODULE_LOCK(module) (&(module)->fsm_lock)
#endif

/* Whether LOCKs wait here (lockwait.h). Ganesha 6 itself tells a client when a lock becomes free. */
#if FSAL_MAJOR_VERSION == 11
#define SPW_LOCKS_WAIT true
#else
#define SPW_LOCKS_WAIT false
#endif

/* Begins a handle, and enters it in the module's list. */
static inline void spw_obj_begin(struct fsal_obj_handle *obj, struct fsal_export *export,
				 object_file_type_t type)
{
#if FSAL_MAJOR_VERSION == 11
	fsal_obj_handle_init(obj, export, type);
#else
	fsal_obj_handle_init(obj, export, type, true);
#endif
}

/* Ends a handle that spw_obj_begin began. */
static inline void spw_obj_end(struct fsal_obj_handle *obj)
{
#if FSAL_MAJOR_VERSION == 11
	fsal_obj_handle_fini(obj);
#else
	fsal_obj_handle_fini(obj, true);
#endif
}

#endif
