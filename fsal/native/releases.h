/* Hides in what the releases of Ganesha's API differ: 11 (Ganesha 4.3) and 13 (Ganesha 6.5). How
 * states are made and freed is in openstate.c. */
#ifndef SPILLWAY_RELEASES_H
#define SPILLWAY_RELEASES_H

#include "ganesha.h"

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
