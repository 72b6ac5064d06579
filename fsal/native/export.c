/* The exports: handles to and from the wire, space, the write verifier.
 *
 * All exports are of one namespace and share Ganesha's cache. An export is a directory, by its
 * inode number: its clients keep it when it is renamed. */
#include "export.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#include "nfs_init.h"

#include "bridge.h"
#include "bytes.h"
#include "closing.h"
#include "control.h"
#include "handle.h"
#include "inode.h"
#include "lockwait.h"
#include "openstate.h"
#include "seal.h"
#include "space.h"
#include "statistics.h"
#include "util.h"

#define SEAL_SECONDS 5u

static struct config_item export_items[] = {
	CONF_ITEM_NOOP("name"),
	CONF_ITEM_UI64("Directory", 0, INT64_MAX, 0, spw_export, directory),
	CONF_ITEM_UI64("Revision", 0, UINT64_MAX, 0, spw_export, revision),
	CONFIG_EOL
};

static struct config_block export_block = {
	.dbus_interface_name = "org.ganesha.nfsd.config.fsal.python-export%d",
	.blk_desc.name = "FSAL",
	.blk_desc.type = CONFIG_BLOCK,
	.blk_desc.u.blk.init = noop_conf_init,
	.blk_desc.u.blk.params = export_items,
	.blk_desc.u.blk.commit = noop_conf_commit,
};

/* After this, Ganesha takes its cache of the export apart, which the control socket's requests
 * still use. */
static void prepare_unexport(struct fsal_export *export)
{
	spw_control_stop(export);
}

static void release(struct fsal_export *export)
{
	spw_control_stop(export);
	/* The next start seals what is left over. */
	(void)spw_queue_flush(SEAL_SECONDS);
	fsal_detach_export(export->fsal, &export->exports);
	free_export_ops(export);
	gsh_free(container_of(export, struct spw_export, export));
}

/* Makes the handle of an inode number. generation 0: any. */
static fsal_status_t handle_by_ino(uint64_t ino, uint64_t generation,
				   struct fsal_obj_handle **obj, struct fsal_attrlist *out)
{
	struct spw_request request = spw_request_for(ino, NULL);
	uint64_t asked = spw_asked();
	struct spw_reply reply;
	/* Larger numbers are never given out: a forged handle must not look like a disk failure. */
	int rc = ino > INT64_MAX ? ESTALE : spw_call(SPW_GETATTR, &request, &reply);

	/* An inode without a name that is not in the cache is open nowhere, so it is being
	 * reclaimed. */
	if (rc == 0 && reply.attr.nlink == 0)
		rc = ESTALE;
	if (rc == 0 && generation != 0 && reply.attr.generation != generation)
		rc = ESTALE;
	if (rc == 0)
		spw_answer(&reply.attr, asked, obj, out);
	return spw_status(rc);
}

/* Looks up the directory of an export. If that fails at the start, Ganesha serves without the
 * export (support/exports.c, exports_pkginit) and answers NFS4ERR_STALE for its handles, so that
 * clients take their files for deleted. Then the process ends, and is started again. */
static fsal_status_t lookup_path(struct fsal_export *export, const char *path,
				 struct fsal_obj_handle **obj, struct fsal_attrlist *out)
{
	uint64_t ino = container_of(export, struct spw_export, export)->directory;
	fsal_status_t status;

	if (strcmp(path, CTX_FULLPATH(op_ctx)) != 0)
		return spw_status(ENOENT);
	status = handle_by_ino(ino != 0 ? ino : spw_python.root_ino, 0, obj, out);
	/* A directory that is gone keeps only its own export away. */
	if (FSAL_IS_ERROR(status) && status.major != ERR_FSAL_STALE &&
	    nfs_init_wait_timeout(0) != 0) {
		fprintf(stderr,
			"spillway: the NFS server ends itself: the directory of export %s cannot be looked up: %s\n",
			path, msg_fsal_err(status.major));
		LogFatal(COMPONENT_FSAL, "export %s cannot be served", path);
	}
	return status;
}

/* Answers a PUTFH whose compound closes the file: "wait" until the bucket has it (closing.h). Each
 * CLOSE is tried, also after one that waits: it may wait for the writer of the next one. */
static fsal_status_t before_close(uint64_t ino, const struct gsh_buffdesc *desc)
{
	struct spw_compound_place place = { 0 };
	uint64_t began = spw_clock_ns();
	struct spw_close close;
	int rc = 0;

	while (spw_compound_next_close(desc, &place, &close)) {
		bool told;
		int tried = spw_closing_try(ino, &close, &told);

		if (rc == 0 || (rc == EAGAIN && tried != 0))
			rc = tried;
		if (told)
			LogEvent(COMPONENT_FSAL,
				 "inode %" PRIu64
				 " is damaged, or the bucket does not have it after acknowledge.wait_seconds: its CLOSE is answered with an error; see: spillway status",
				 ino);
	}
	/* Ganesha asks for the CLOSE itself (close2) only if this is no error. */
	return rc == 0 ? spw_status(0) : spw_counted(SPW_COUNTED_CLOSE, began, spw_status(rc), 0);
}

/* Keeps OPENs of the states from them that the compound closes. In NFSv4.0 a client sends no CLOSE
 * while an OPEN of the same owner is under way. */
static void before_opens(uint64_t ino, const struct gsh_buffdesc *desc)
{
	const struct COMPOUND4args *compound = spw_compound();
	struct spw_compound_place place = { 0 };
	struct spw_close close;

	if (compound == NULL || compound->minorversion == 0)
		return;
	while (spw_compound_next_close(desc, &place, &close))
		if (!close.is_current)
			spw_opening_close(ino, &close);
}

static fsal_status_t wire_to_host(struct fsal_export *export, fsal_digesttype_t in_type,
				  struct gsh_buffdesc *desc, int flags)
{
	struct spw_lock wanted;
	fsal_status_t status;
	struct spw_fh fh;

	(void)export;
	(void)flags;
	if (desc->addr == NULL || desc->len != sizeof(fh))
		return fsalstat(ERR_FSAL_BADHANDLE, 0);
	memcpy(&fh, desc->addr, sizeof(fh));
	if (fh.magic != SPW_FH_MAGIC || fh.version != SPW_FH_VERSION)
		return fsalstat(ERR_FSAL_BADHANDLE, 0);
	if (fh.volume_id != spw_python.volume_id)
		return spw_status(ESTALE);
	/* Requests of other protocols have no compound to look at. */
	if (in_type != FSAL_DIGEST_NFSV4)
		return fsalstat(ERR_FSAL_NO_ERROR, 0);
	if (SPW_LOCKS_WAIT && spw_lock_is_waited_for(fh.ino, &wanted))
		spw_lock_wait(&wanted, spw_lock_is_asked);
	status = spw_closing_wanted() ? before_close(fh.ino, desc) : spw_status(0);
	if (!FSAL_IS_ERROR(status))
		before_opens(fh.ino, desc);
	return status;
}

static fsal_status_t create_handle(struct fsal_export *export, struct gsh_buffdesc *desc,
				   struct fsal_obj_handle **obj, struct fsal_attrlist *out)
{
	uint64_t began = spw_clock_ns();
	fsal_status_t status;
	struct spw_fh fh;

	(void)export;
	*obj = NULL;
	if (desc->len != sizeof(fh))
		return fsalstat(ERR_FSAL_BADHANDLE, 0);
	memcpy(&fh, desc->addr, sizeof(fh));
	status = handle_by_ino(fh.ino, fh.generation, obj, out);
	return spw_counted(SPW_COUNTED_HANDLE, began, status, 0);
}

static fsal_status_t dynamic_info(struct fsal_export *export, struct fsal_obj_handle *obj,
				  fsal_dynamicfsinfo_t *info)
{
	struct statvfs st;

	(void)export;
	(void)obj;
	if (fstatvfs(spw_files_dir_fd(), &st) != 0)
		return spw_status(errno);
	info->total_bytes = (uint64_t)st.f_blocks * st.f_frsize;
	info->free_bytes = (uint64_t)st.f_bfree * st.f_frsize;
	/* Writers really get this: the reserve is left out, and the dirty limit counts. */
	info->avail_bytes = spw_space_available();
	if (info->free_bytes > info->avail_bytes)
		info->free_bytes = info->avail_bytes;
	info->total_files = st.f_files;
	info->free_files = st.f_ffree;
	info->avail_files = st.f_favail;
	info->time_delta.tv_sec = 0;
	info->time_delta.tv_nsec = 1;
	return fsalstat(ERR_FSAL_NO_ERROR, 0);
}

/* Ganesha's own verifier is its start time in seconds: two starts in one second would hide lost
 * writes. */
static void write_verifier(struct fsal_export *export, struct gsh_buffdesc *desc)
{
	uint64_t verifier = spw_python.boot << 24 | (spw_lost_count() & 0xffffff);

	(void)export;
	memcpy(desc->addr, &verifier, desc->len < sizeof(verifier) ? desc->len : sizeof(verifier));
}

fsal_status_t spw_create_export(struct fsal_module *module, void *parse_node,
				struct config_error_type *err_type,
				const struct fsal_up_vector *up_ops)
{
	struct spw_export *self = gsh_calloc(1, sizeof(*self));
	int rc;

	fsal_export_init(&self->export);
	self->export.exp_ops.prepare_unexport = prepare_unexport;
	self->export.exp_ops.release = release;
	self->export.exp_ops.lookup_path = lookup_path;
	self->export.exp_ops.wire_to_host = wire_to_host;
	self->export.exp_ops.create_handle = create_handle;
	self->export.exp_ops.get_fs_dynamic_info = dynamic_info;
	self->export.exp_ops.get_write_verifier = write_verifier;
	spw_state_ops(&self->export.exp_ops);

	rc = load_config_from_node(parse_node, &export_block, self, true, err_type);
	if (rc != 0)
		rc = EINVAL;
	else
		rc = fsal_attach_export(module, &self->export.exports);
	if (rc != 0) {
		LogMajor(COMPONENT_FSAL, "export %s: %s", CTX_FULLPATH(op_ctx), strerror(rc));
		free_export_ops(&self->export);
		gsh_free(self);
		return spw_status(rc);
	}
	spw_exported_by(module);
	self->export.fsal = module;
	self->export.up_ops = up_ops;
	op_ctx->fsal_export = &self->export;
	spw_control_start(&self->export);
	return fsalstat(ERR_FSAL_NO_ERROR, 0);
}

fsal_status_t spw_update_export(struct fsal_module *module, void *parse_node,
				struct config_error_type *err_type, struct fsal_export *original,
				struct fsal_module *updated_super)
{
	struct spw_export *self = container_of(original, struct spw_export, export), scratch;
	fsal_status_t status = update_export(module, parse_node, err_type, original, updated_super);

	if (FSAL_IS_ERROR(status))
		return status;
	memset(&scratch, 0, sizeof(scratch));
	if (load_config_from_node(parse_node, &export_block, &scratch, true, err_type) != 0)
		return spw_status(EINVAL);
	/* Handles and open files lead to the old directory: it is another export. */
	if (scratch.directory != self->directory)
		return spw_status(EINVAL);
	PTHREAD_RWLOCK_wrlock(SPW_MODULE_LOCK(module));
	self->revision = scratch.revision;
	PTHREAD_RWLOCK_unlock(SPW_MODULE_LOCK(module));
	return fsalstat(ERR_FSAL_NO_ERROR, 0);
}
