/* Server of requests of the control socket, which run as those of clients do. Then Ganesha's cache
 * is told, and then the peer gets the answer.
 *
 * Only root and the server's own user may ask (control_peer.c). The credentials of a request decide
 * who may change entries, as for clients. What Ganesha checks for clients before it calls the
 * plugin is left to root.
 */
#define _GNU_SOURCE
#include "control.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "ganesha.h"

#include "nfs_init.h"

#include "cold.h"
#include "export.h"
#include "inode.h"
#include "names.h"
#include "statistics.h"
#include "util.h"

#define READY_SECONDS 1
#define SHARED_TOLD 8u /* names in a second */
#define COMMIT_WORDS (sizeof(struct spw_commits) / sizeof(uint64_t))
#define STATISTICS_BYTES \
	(SPW_COUNTED_KINDS * sizeof(struct spw_counts) + sizeof(struct spw_commits))

_Static_assert(STATISTICS_BYTES <= SPW_CONTROL_DATA_BYTES, "the statistics fit in an answer");

static struct {
	pthread_mutex_t lock; /* for start and stop */
	pthread_t keeper;
	struct fsal_export *export; /* NULL: there is none */
	atomic_bool ending;
	sem_t end; /* wakes the keeper */
} service = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void forget(const struct spw_attr *attr, bool is_moved)
{
	if (attr->ino != 0)
		spw_upcall_forget(service.export->up_ops, attr->ino, attr->generation, is_moved);
}

static void forget_known(uint64_t ino)
{
	spw_upcall_forget_known(service.export->up_ops, ino);
}

static void forget_removed(const struct spw_removed *removed)
{
	forget_known(removed->ino);
	if (removed->kind == SPW_REGULAR && removed->nlink == 0)
		spw_release(service.export->up_ops, removed->ino);
}

/* ---- requests ---- */

/* Finds the inode object of a number and takes one more handle on it. Returns 0 or an errno. */
static int hold(uint64_t ino, struct spw_inode **inode)
{
	struct spw_request request = { .ino = ino };
	uint64_t asked = spw_asked();
	struct spw_reply reply;
	int rc = spw_call(SPW_GETATTR, &request, &reply);

	if (rc == 0 && reply.attr.nlink == 0)
		rc = ESTALE;
	if (rc == 0)
		*inode = spw_inode_get(&reply.attr, asked);
	return rc;
}

static int getattr(uint64_t ino, struct spw_attr *attr)
{
	struct spw_inode *inode;
	int rc = hold(ino, &inode);

	if (rc != 0)
		return rc;
	rc = spw_getattr(inode, attr);
	spw_inode_put(inode);
	/* Ganesha may not have been told of another request yet. Then clients would see an older
	 * state than this answer. */
	if (rc == 0)
		forget(attr, false);
	return rc;
}

static int lookup(const struct spw_request *request, struct spw_attr *attr)
{
	int rc = spw_find(request, attr);

	return rc != 0 ? rc : getattr(attr->ino, attr);
}

static int set_attributes(const struct spw_request *request, struct spw_attr *attr)
{
	struct spw_inode *inode;
	struct spw_reply reply;
	int rc;

	/* Ganesha checks this for clients. The namespace does not check it. */
	if (request->uid != 0)
		return EPERM;
	rc = hold(request->ino, &inode);
	if (rc != 0)
		return rc;
	rc = spw_set_attributes(inode, request, &reply);
	if (rc == 0) {
		*attr = reply.attr;
		forget(attr, false);
	} else {
		forget_known(request->ino);
	}
	/* With the last handle the generation would be lost, and Ganesha would not be told. */
	spw_inode_put(inode);
	return rc;
}

static int change(enum spw_op op, const struct spw_request *request, struct spw_attr *attr)
{
	struct spw_reply reply;
	int rc = spw_change(op, request, &reply);

	if (rc == 0) {
		forget(&reply.parent, false);
		forget(&reply.parent2, false);
		if (op == SPW_RENAME)
			forget(&reply.attr, true);
		forget_removed(&reply.removed);
		*attr = reply.attr;
	} else if (spw_is_indeterminate(rc)) {
		forget_known(request->ino);
		forget_known(request->ino2);
	}
	return rc;
}

static int exports(struct spw_control_reply *reply)
{
	struct spw_exported *list = (void *)reply->data;
	uint32_t count = spw_exported(list, SPW_CONTROL_DATA_BYTES / sizeof(*list));

	reply->data_bytes = count * sizeof(*list);
	return 0;
}

static int clients(const struct spw_control_request *asked, struct spw_control_reply *reply)
{
	struct spw_client_row *rows = (void *)reply->data;

	reply->data_bytes = sizeof(*rows) *
			    spw_clients(asked->offset, rows, SPW_CONTROL_DATA_BYTES / sizeof(*rows));
	return 0;
}

static int leases(const struct spw_control_request *asked, struct spw_control_reply *reply)
{
	struct spw_lease *list = (void *)reply->data;

	reply->data_bytes = sizeof(*list) *
			    spw_leases(asked->offset, list, SPW_CONTROL_DATA_BYTES / sizeof(*list));
	return 0;
}

static int opened(const struct spw_control_request *asked, struct spw_control_reply *reply)
{
	struct spw_opened_place place = { .chain = asked->offset, .below = asked->length };
	struct spw_opened_row *rows = (void *)reply->data;

	reply->data_bytes = sizeof(*rows) *
			    spw_opened_list(asked->request.ino, &place, rows,
					    SPW_CONTROL_DATA_BYTES / sizeof(*rows));
	reply->offset = place.chain;
	reply->length = place.below;
	return 0;
}

static int serve(uint32_t op, const struct spw_control_request *asked, struct spw_control_reply *reply)
{
	const struct spw_request *request = &asked->request;
	struct spw_attr *attr = &reply->attr;

	/* Larger numbers are never given out: a database would fail on them instead of finding
	 * nothing. */
	if (request->ino > INT64_MAX || request->ino2 > INT64_MAX || request->cookie > INT64_MAX)
		return EINVAL;
	switch (op) {
	case SPW_CONTROL_LOOKUP:
		return lookup(request, attr);
	case SPW_CONTROL_GETATTR:
		return getattr(request->ino, attr);
	case SPW_CONTROL_MKDIR:
		return change(SPW_MKDIR, request, attr);
	case SPW_CONTROL_SYMLINK:
		return change(SPW_SYMLINK_OP, request, attr);
	case SPW_CONTROL_RENAME:
		return change(SPW_RENAME, request, attr);
	case SPW_CONTROL_REMOVE:
		return change(SPW_REMOVE, request, attr);
	case SPW_CONTROL_SETATTR:
		return set_attributes(request, attr);
	case SPW_CONTROL_INSTALL:
		return change(SPW_INSTALL, request, attr);
	case SPW_CONTROL_EXPORTS:
		return exports(reply);
	case SPW_CONTROL_CLIENTS:
		return clients(asked, reply);
	case SPW_CONTROL_LEASES:
		return leases(asked, reply);
	case SPW_CONTROL_OPENED:
		return opened(asked, reply);
	default:
		return spw_cold_serve(op, asked, reply);
	}
}

/* Writes the counts of all kinds of operations, and of the commits. */
static int statistics(struct spw_control_reply *reply)
{
	const volatile uint64_t *from = (const uint64_t *)spw_python.commits;
	struct spw_counts *counts = (void *)reply->data;
	uint64_t *words = (uint64_t *)&counts[SPW_COUNTED_KINDS];

	for (int kind = 0; kind < SPW_COUNTED_KINDS; kind++)
		spw_counts(kind, &counts[kind]);
	for (size_t i = 0; i < COMMIT_WORDS; i++)
		words[i] = from[i];
	reply->offset = spw_statistics_began_ns();
	reply->data_bytes = STATISTICS_BYTES;
	return 0;
}

static int tell(uint32_t op, struct spw_control_reply *reply)
{
	return op == SPW_CONTROL_STATISTICS ? statistics(reply) : ENOSYS;
}

/* ---- begin and end ---- */

/* Returns false when the control socket is to be closed. */
static bool wait_a_second(void)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec++;
	(void)sem_clockwait(&service.end, CLOCK_MONOTONIC, &until);
	return !atomic_load(&service.ending);
}

struct look {
	uint64_t now_ms;
	unsigned int count;
	struct spw_shared found[SHARED_TOLD];
};

static void look_at(const struct spw_lease *lease, void *argument)
{
	struct look *look = argument;
	struct spw_shared found;

	if (spw_shared_look(lease, look->now_ms, &found) && look->count < SHARED_TOLD)
		look->found[look->count++] = found;
}

/* Tells the namespace of names that clients share, after the walk, which must not wait. */
static void look_at_clients(void)
{
	struct look look = { .now_ms = spw_clock_ms() };

	spw_clients_look(look.now_ms);
	spw_leases_each(look_at, &look);
	for (unsigned int i = 0; i < look.count; i++) {
		const struct spw_shared *found = &look.found[i];
		struct spw_request request = {
			.name = found->name, .name_len = found->name_bytes,
			.name2 = found->addresses,
			.name2_len = (uint32_t)strlen(found->addresses),
		};
		struct spw_reply reply;

		(void)spw_call(SPW_SHARED, &request, &reply);
	}
}

/* The control socket opens after Ganesha has started as a whole: before that, Ganesha would find no
 * export. */
static void *keep_control_socket(void *argument)
{
	int rc = ETIMEDOUT;

	(void)argument;
	while (!atomic_load(&service.ending) && rc != 0)
		rc = nfs_init_wait_timeout(READY_SECONDS);
	if (rc != 0)
		return NULL;
	rc = spw_control_open(spw_python.run_dir, serve, tell);
	if (rc != 0)
		LogCrit(COMPONENT_FSAL, "no control socket in %s: %s; clients are served all the same",
			spw_python.run_dir, strerror(rc));
	while (rc == 0 && wait_a_second()) {
		spw_release_again(service.export->up_ops);
		look_at_clients();
	}
	return NULL;
}

/* Ends what uses the export's upcalls beside the control socket. */
static void end_without_control_socket(void)
{
	spw_change_tell(NULL);
	spw_stale_names_stop();
	service.export = NULL;
}

void spw_control_start(struct fsal_export *export)
{
	pthread_mutex_lock(&service.lock);
	if (service.export == NULL) {
		int rc;

		service.export = export;
		spw_change_tell(export->up_ops);
		rc = spw_stale_names_start(export->up_ops);
		if (rc != 0)
			LogCrit(COMPONENT_FSAL, "names of two clients may stay wrong: %s", strerror(rc));
		spw_cold_open();
		atomic_store(&service.ending, false);
		sem_init(&service.end, 0, 0);
		rc = pthread_create(&service.keeper, NULL, keep_control_socket, NULL);
		if (rc != 0) {
			LogCrit(COMPONENT_FSAL, "no control socket: %s", strerror(rc));
			end_without_control_socket();
		}
	}
	pthread_mutex_unlock(&service.lock);
}

void spw_control_stop(const struct fsal_export *export)
{
	pthread_mutex_lock(&service.lock);
	if (service.export == export) {
		atomic_store(&service.ending, true);
		sem_post(&service.end);
		/* Parked reads and the worker that waits for the hydrator end first. */
		spw_cold_close();
		pthread_join(service.keeper, NULL);
		spw_control_close();
		spw_release_end();
		end_without_control_socket();
	}
	pthread_mutex_unlock(&service.lock);
}
