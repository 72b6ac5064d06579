/* Functions that Ganesha calls to make an export, and when its configuration was read again. */
#ifndef SPILLWAY_EXPORT_H
#define SPILLWAY_EXPORT_H

#include "ganesha.h"

/* Makes the export of a block of the configuration (fsal_module.m_ops.create_export). */
fsal_status_t spw_create_export(struct fsal_module *module, void *parse_node,
				struct config_error_type *err_type,
				const struct fsal_up_vector *up_ops);

/* Checks the block when the configuration is read again (fsal_module.m_ops.update_export). */
fsal_status_t spw_update_export(struct fsal_module *module, void *parse_node,
				struct config_error_type *err_type, struct fsal_export *original,
				struct fsal_module *updated_super);

#endif
