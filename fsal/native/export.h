/* The exports, and the functions that Ganesha calls to make them. */
#ifndef SPILLWAY_EXPORT_H
#define SPILLWAY_EXPORT_H

#include <stdint.h>

#include "ganesha.h"

/* ---- exported.c ---- */

/* The exports that there are. */

struct spw_export {
	struct fsal_export export;
	uint64_t directory; /* the inode of its root; 0: that of the namespace */
	uint64_t revision;  /* of the text that was read last; the module's lock guards it */
};

/* An export, for another process. Ganesha drops an export whose block it refuses when it reads the
 * configuration again, so a refusal shows in a list of them (gateway/nfs/server.py). */
struct spw_exported {
	uint32_t export_id;
	uint32_t is_mounted; /* 1: clients find it by its path */
	uint64_t directory;
	uint64_t revision; /* Ganesha may have refused the rest of this text */
	uint64_t reading;  /* the last reading of the configuration that Ganesha took; 0: none yet */
};

/* Sets the module of all exports. */
void spw_exported_by(struct fsal_module *module);

/* Lists the exports. Returns how many are in the list. It takes locks of Ganesha's. */
uint32_t spw_exported(struct spw_exported *list, uint32_t most);

/* ---- export.c ---- */

/* Functions that Ganesha calls to make an export, and when its configuration was read again. */

/* Makes the export of a block of the configuration (fsal_module.m_ops.create_export). */
fsal_status_t spw_create_export(struct fsal_module *module, void *parse_node,
				struct config_error_type *err_type,
				const struct fsal_up_vector *up_ops);

/* Checks the block when the configuration is read again (fsal_module.m_ops.update_export). */
fsal_status_t spw_update_export(struct fsal_module *module, void *parse_node,
				struct config_error_type *err_type, struct fsal_export *original,
				struct fsal_module *updated_super);

#endif
