/* List of the exports: what the plugin read of each, and whether Ganesha took it. */
#include "export.h"

#include "export_mgr.h"

static struct fsal_module *own;

void spw_exported_by(struct fsal_module *module)
{
	own = module;
}

/* Adds what Ganesha knows of an export. Ganesha sets the reading last, after all checks. */
static void complete(struct spw_exported *entry)
{
	struct gsh_export *export = get_gsh_export((uint16_t)entry->export_id);

	if (export == NULL)
		return;
	entry->reading = export->config_gen;
	entry->is_mounted = export->is_mounted;
	put_gsh_export(export);
}

uint32_t spw_exported(struct spw_exported *list, uint32_t most)
{
	struct glist_head *at;
	uint32_t count = 0;

	PTHREAD_RWLOCK_rdlock(SPW_MODULE_LOCK(own));
	glist_for_each(at, &own->exports) {
		const struct spw_export *self = container_of(
			glist_entry(at, struct fsal_export, exports), struct spw_export, export);

		if (count < most)
			list[count++] = (struct spw_exported){
				.export_id = self->export.export_id,
				.directory = self->directory,
				.revision = self->revision,
			};
	}
	PTHREAD_RWLOCK_unlock(SPW_MODULE_LOCK(own));
	for (uint32_t i = 0; i < count; i++)
		complete(&list[i]);
	return count;
}
