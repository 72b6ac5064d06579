/* Module that Ganesha loads: registered at that moment, started when its configuration is read. */
#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/statvfs.h>

#include "bridge.h"
#include "bytes.h"
#include "closing.h"
#include "cold.h"
#include "export.h"
#include "handle.h"
#include "inode.h"
#include "lockwait.h"
#include "names.h"
#include "seal.h"
#include "space.h"
#include "statistics.h"
#include "util.h"

#define SPW_LINK_MAX 32000 /* gateway/common/types.py LINK_MAX */
#define USED_ROUNDS 10u /* reports of space, one a second, to a look at what is used */

static struct spw_module {
	struct fsal_module module;
	char *executable;
	char *config;
} python_fsal = {
	.module = {
		.fs_info = {
			.maxfilesize = INT64_MAX,
			.maxlink = SPW_LINK_MAX,
			.maxnamelen = 255,
			.maxpathlen = 4096,
			.no_trunc = true,
			.chown_restricted = true,
			.case_insensitive = false,
			.case_preserving = true,
			.link_support = true,
			.symlink_support = true,
			/* Ganesha itself keeps byte-range locks, and tells us of them */
			.lock_support = SPW_LOCKS_WAIT,
			.unique_handles = true,
			.cansettime = true,
			.homogenous = true,
			.supported_attrs = SPW_ATTRIBUTES,
			.maxread = FSAL_MAXIOSIZE,
			.maxwrite = FSAL_MAXIOSIZE,
			.readdir_plus = true,
			.xattr_support = true,
			.expire_time_parent = -1,
		},
	},
};

static struct config_item module_items[] = {
	CONF_MAND_PATH("Executable", 1, MAXPATHLEN, NULL, spw_module, executable),
	CONF_MAND_PATH("Config", 1, MAXPATHLEN, NULL, spw_module, config),
	CONFIG_EOL
};

static struct config_block module_block = {
	.dbus_interface_name = "org.ganesha.nfsd.config.fsal.python",
	.blk_desc.name = "PYTHON",
	.blk_desc.type = CONFIG_BLOCK,
	.blk_desc.u.blk.init = noop_conf_init,
	.blk_desc.u.blk.params = module_items,
	.blk_desc.u.blk.commit = noop_conf_commit,
};

/* ---- the namespace, as bytes need it ---- */

static int call_attr(enum spw_op op, const struct spw_request *request, struct spw_attr *attr)
{
	struct spw_reply reply;
	int rc = spw_call(op, request, &reply);

	if (rc == 0)
		*attr = reply.attr;
	return rc;
}

static int ns_open_write(uint64_t ino, uint32_t flags, struct spw_attr *attr)
{
	struct spw_request request = { .ino = ino, .flags = flags };
	struct spw_reply reply;
	int rc;

	do
		rc = spw_call(SPW_OPEN_WRITE, &request, &reply);
	while (spw_unname(rc, &reply));
	if (rc == 0)
		*attr = reply.attr;
	return rc;
}

static void ns_seal(struct spw_seal *seals, uint32_t count)
{
	struct spw_request request = { .seals = seals, .entries_max = count };
	struct spw_reply reply;

	(void)spw_call(SPW_SEAL, &request, &reply);
}

static int ns_getattr(uint64_t ino, struct spw_attr *attr)
{
	struct spw_request request = { .ino = ino };

	return call_attr(SPW_GETATTR, &request, attr);
}

static void ns_reclaim(struct spw_orphan *orphans, uint32_t count)
{
	struct spw_request request = { .orphans = orphans, .entries_max = count };
	struct spw_reply reply;

	/* The sealer tries again for an orphan for which this fails. */
	(void)spw_call(SPW_RECLAIM, &request, &reply);
}

static int ns_damage(uint64_t ino, const char *reason)
{
	struct spw_request request = {
		.ino = ino, .name = reason,
		.name_len = reason != NULL ? (uint32_t)strlen(reason) : 0,
	};
	struct spw_reply reply;

	return spw_call(SPW_DAMAGE, &request, &reply);
}

static int ns_damages(uint64_t after, uint64_t *inos, uint32_t most, uint32_t *count)
{
	struct spw_request request = {
		.cookie = after, .buffer = (char *)inos, .entries_max = most,
		.buffer_bytes = most * (uint32_t)sizeof(*inos),
	};
	struct spw_reply reply;
	int rc = spw_call(SPW_DAMAGES, &request, &reply);

	*count = rc == 0 ? reply.count : 0;
	return rc;
}

static int ns_evict(uint64_t ino, uint64_t content_version, const struct stat *st,
		    struct spw_attr *attr)
{
	struct spw_request request = { .ino = ino, .cookie = content_version };

	if (st == NULL) {
		request.flags = SPW_NO_DATA_FILE;
	} else {
		request.ino2 = (uint64_t)st->st_size;
		request.ino3 = (uint64_t)spw_ns(&st->st_mtim);
	}
	return call_attr(SPW_EVICT, &request, attr);
}

static int ns_arrived(uint64_t ino, uint64_t epoch, uint64_t content_version, struct spw_attr *attr)
{
	struct spw_request request = { .ino = ino, .ino2 = epoch, .cookie = content_version };

	return call_attr(SPW_ARRIVED, &request, attr);
}

static int ns_lost(uint64_t ino, const struct spw_loss *loss, struct spw_attr *attr)
{
	struct spw_request request = {
		.ino = ino, .cookie = loss->content_version,
		.flags = loss->is_not_stored ? SPW_NOT_STORED : 0,
		.name = loss->reason, .name_len = (uint32_t)strlen(loss->reason),
	};

	return call_attr(SPW_LOST, &request, attr);
}

static void ns_note_reads(const struct spw_read *reads, uint32_t count)
{
	struct spw_request request = {
		.buffer = (char *)(uintptr_t)reads, .entries_max = count,
		.buffer_bytes = count * (uint32_t)sizeof(*reads),
	};
	struct spw_reply reply;

	/* Reads that are not recorded make files look older than they are. */
	(void)spw_call(SPW_NOTE_READS, &request, &reply);
}

static int ns_acknowledged(uint64_t ino, uint32_t *answer)
{
	struct spw_request request = { .ino = ino };
	struct spw_reply reply;
	int rc = spw_call(SPW_ACKNOWLEDGED, &request, &reply);

	*answer = reply.count;
	return rc;
}

/* ---- disk and namespace, as space.c needs them ---- */

static int disk(uint64_t *total_bytes, uint64_t *free_bytes)
{
	struct statvfs st;

	if (fstatvfs(spw_files_dir_fd(), &st) != 0)
		return errno;
	*total_bytes = (uint64_t)st.f_blocks * st.f_frsize;
	*free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
	return 0;
}

/* Gives the memory of buffers back that the C library keeps (gateway/nfs/ganesha_conf.py), once no READ
 * or WRITE was answered since the last call. */
static void give_memory_back(void)
{
	static struct spw_counts reads, writes;
	static bool is_kept;
	struct spw_counts reads_now, writes_now;

	spw_counts(SPW_COUNTED_READ, &reads_now);
	spw_counts(SPW_COUNTED_WRITE, &writes_now);
	if (memcmp(&reads, &reads_now, sizeof(reads)) != 0 ||
	    memcmp(&writes, &writes_now, sizeof(writes)) != 0) {
		reads = reads_now;
		writes = writes_now;
		is_kept = true;
	} else if (is_kept) {
		(void)malloc_trim(0);
		is_kept = false;
	}
}

/* The start calls it once, and then one thread. */
static void ns_space(const struct spw_space *space, uint64_t *dirty_bytes)
{
	static struct spw_used used;
	static unsigned int rounds;
	struct spw_request request = { .space = *space };
	struct spw_reply reply;

	/* The list of 100,000 descriptors takes a tenth of a second. At the start no thread answers. */
	if (rounds++ % USED_ROUNDS == 1) {
		spw_used(&used);
		give_memory_back();
	}
	request.space.used = used;
	request.space.refused_opens = spw_files_refused();
	if (spw_call(SPW_SPACE, &request, &reply) == 0)
		*dirty_bytes = reply.dirty_bytes;
}

static void ns_flow(uint64_t ino, const char *client, uint64_t *top, uint32_t *weight)
{
	struct spw_request request = {
		.ino = ino, .name = client, .name_len = (uint32_t)strlen(client),
	};
	struct spw_reply reply;

	if (spw_call(SPW_FLOW, &request, &reply) == 0) {
		*top = reply.attr.ino;
		*weight = reply.count;
	}
}

static void start_or_die(int rc, const char *what)
{
	if (rc != 0)
		LogFatal(COMPONENT_FSAL, "%s did not start: %s", what, strerror(rc));
}

static fsal_status_t init_config(struct fsal_module *module, config_file_t config,
				 struct config_error_type *err_type)
{
	static const struct spw_inode_ops namespace_ops = {
		.open_write = ns_open_write,
		.seal = ns_seal,
		.getattr = ns_getattr,
		.reclaim = ns_reclaim,
		.damage = ns_damage,
		.damages = ns_damages,
		.evict = ns_evict,
		.arrived = ns_arrived,
		.lost = ns_lost,
		.note_reads = ns_note_reads,
		.acknowledged = ns_acknowledged,
	};
	static const struct spw_space_ops space_ops = {
		.disk = disk,
		.report = ns_space,
		.flow = ns_flow,
	};
	struct spw_limits limits;
	int rc;

	(void)module;
	spw_statistics_start();
	spw_used_start();
	(void)load_config_from_parse(config, &module_block, &python_fsal, true, err_type);
	if (!config_error_is_harmless(err_type) || python_fsal.executable == NULL)
		LogFatal(COMPONENT_FSAL, "PYTHON { Executable and Config } are required");
	/* Without the namespace there is nothing to serve, so the process ends. */
	if (spw_python_start(python_fsal.executable, python_fsal.config) != 0)
		LogFatal(COMPONENT_FSAL, "the namespace did not start; the reason is on stderr");
	spw_namespace_start(&namespace_ops);
	spw_inodes_start();
	spw_lockwait_start();
	spw_closing_start(spw_python.acknowledges != 0, spw_python.acknowledge_ms);
	rc = spw_files_start(spw_python.files_dir);
	if (rc != 0)
		LogFatal(COMPONENT_FSAL, "data directory %s: %s; run: spillway init",
			 spw_python.files_dir, strerror(rc));
	limits.reserve_bytes = spw_python.reserve_bytes;
	limits.dirty_limit_bytes = spw_python.dirty_limit_bytes;
	limits.slow_per_mille = spw_python.slow_per_mille;
	limits.full_wait_ms = spw_python.full_wait_ms;
	start_or_die(spw_calls_start(), "the callers of the namespace");
	start_or_die(spw_damage_start(), "the list of damaged files");
	start_or_die(spw_sealer_start(), "the sealer");
	start_or_die(spw_cold_start(spw_python.park_ms), "the answers to parked reads");
	start_or_die(spw_reads_start(), "the notes of reads");
	spw_space_start(&limits, &space_ops);
	start_or_die(spw_space_thread(), "the watch over the space");
	return fsalstat(ERR_FSAL_NO_ERROR, 0);
}

MODULE_INIT void spw_init(void)
{
	struct fsal_module *module = &python_fsal.module;

	if (register_fsal(module, "PYTHON", FSAL_MAJOR_VERSION, FSAL_MINOR_VERSION,
			  FSAL_ID_NO_PNFS) != 0) {
		LogCrit(COMPONENT_FSAL, "FSAL_PYTHON did not register");
		return;
	}
	/* register_fsal copies the defaults over m_ops, so they are set after it. */
	module->m_ops.init_config = init_config;
	module->m_ops.create_export = spw_create_export;
	module->m_ops.update_export = spw_update_export;
	spw_obj_ops_fill();
}

MODULE_FINI void spw_fini(void)
{
	/* Ganesha has ended its clients and exports: an older copy of the database is known from now
	 * on. */
	spw_python_stop();
	if (unregister_fsal(&python_fsal.module) != 0)
		LogCrit(COMPONENT_FSAL, "FSAL_PYTHON is still in use at unload");
}
