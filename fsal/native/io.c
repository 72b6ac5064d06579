/* Reads and writes for Ganesha, without Python. The callback gets the result exactly once. */
#include "handle.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "bytes.h"
#include "cold.h"
#include "names.h"
#include "openstate.h"
#include "space.h"
#include "util.h"

#define PARK_TRIES 3 /* the bytes may arrive between the look and the parking */

/* A READ that waits for bytes of the bucket. Its request keeps the object and the buffers. */
struct waiting_read {
	struct spw_parked parked;
	struct fsal_obj_handle *obj;
	fsal_async_cb done_cb;
	struct fsal_io_arg *arg;
	void *caller_arg;
	struct gsh_export *gsh_export; /* a reference */
	struct fsal_export *export;
	struct spw_client *client;
	uint64_t began_ns;
};

static int read_now(struct spw_inode *inode, struct fsal_io_arg *arg)
{
	size_t amount = 0;
	bool eof = false;
	int rc = spw_read(inode, arg->iov, arg->iov_count, arg->offset, &amount, &eof);

	arg->io_amount = amount;
	arg->end_of_file = eof;
	return rc;
}

static void answer_read(struct fsal_obj_handle *obj, uint64_t began_ns, fsal_status_t status,
			fsal_async_cb done_cb, struct fsal_io_arg *arg, void *caller_arg)
{
	status = spw_counted(SPW_COUNTED_READ, began_ns, status, arg->io_amount);
	done_cb(obj, status, arg, caller_arg);
}

/* Answers a parked READ. No operation context of Ganesha's exists in this thread. */
static void resume_read(struct spw_parked *parked, int rc)
{
	struct waiting_read *read = container_of(parked, struct waiting_read, parked);
	struct req_op_context context;

	init_op_context_simple(&context, read->gsh_export, read->export);
	if (rc == 0)
		rc = read_now(parked->inode, read->arg);
	if (rc == EINPROGRESS) /* it was evicted again */
		rc = EAGAIN;
	if (rc != EAGAIN)
		spw_client_count(read->client, SPW_COUNTED_READ, rc == 0 ? read->arg->io_amount : 0);
	answer_read(read->obj, read->began_ns, spw_status(rc), read->done_cb, read->arg,
		    read->caller_arg);
	release_op_context(); /* gives the reference back */
	gsh_free(read);
}

/* Parks a READ until its bytes are here, without a thread. Returns as spw_cold_park. */
static int park(struct fsal_obj_handle *obj, uint64_t began_ns, fsal_async_cb done_cb,
		struct fsal_io_arg *arg, void *caller_arg)
{
	const char *client = spw_caller();
	struct waiting_read *read = gsh_calloc(1, sizeof(*read));
	int rc;

	read->parked.inode = spw_handle_of(obj)->inode;
	read->parked.offset = arg->offset;
	for (int i = 0; i < arg->iov_count; i++)
		read->parked.length += arg->iov[i].iov_len;
	read->parked.client = spw_hash(0, client, (uint32_t)strlen(client));
	read->parked.resume = resume_read;
	read->obj = obj;
	read->done_cb = done_cb;
	read->arg = arg;
	read->caller_arg = caller_arg;
	read->gsh_export = op_ctx->ctx_export;
	read->export = op_ctx->fsal_export;
	read->client = spw_client_of(client);
	read->began_ns = began_ns;
	get_gsh_export_ref(read->gsh_export);
	rc = spw_cold_park(&read->parked);
	if (rc != 0) {
		put_gsh_export(op_ctx->ctx_export);
		gsh_free(read);
	}
	return rc;
}

/* Reads, or parks the READ. Returns whether it is parked; it may be answered already then. */
static bool read_or_park(struct fsal_obj_handle *obj, uint64_t began_ns, fsal_async_cb done_cb,
			 struct fsal_io_arg *arg, void *caller_arg, int *rc)
{
	for (int i = 0; i < PARK_TRIES; i++) {
		*rc = read_now(spw_handle_of(obj)->inode, arg);
		if (*rc != EINPROGRESS)
			return false;
		*rc = park(obj, began_ns, done_cb, arg, caller_arg);
		if (*rc != EALREADY)
			return *rc == 0;
	}
	*rc = EAGAIN;
	return false;
}

static void read2(struct fsal_obj_handle *obj, bool bypass, fsal_async_cb done_cb,
		  struct fsal_io_arg *arg, void *caller_arg)
{
	fsal_status_t status = { ERR_FSAL_NO_ERROR, 0 };
	uint64_t began = spw_clock_ns();
	int rc;

	arg->io_amount = 0;
	arg->end_of_file = false;
	if (arg->info != NULL) /* READ_PLUS; once refused, a client asks with READ */
		status = fsalstat(ERR_FSAL_NOTSUPP, 0);
	else if (arg->state == NULL)
		status = spw_share_check(spw_handle_of(obj)->inode, FSAL_O_READ, bypass);
	if (!FSAL_IS_ERROR(status)) {
		if (read_or_park(obj, began, done_cb, arg, caller_arg, &rc))
			return;
		status = spw_status(rc);
	}
	answer_read(obj, began, status, done_cb, arg, caller_arg);
}

/* Takes room for so many bytes more, for this client. */
static fsal_status_t take_room(struct spw_inode *inode, uint64_t bytes)
{
	return spw_status(spw_space_take(inode->ino, &inode->top, spw_caller(), bytes));
}

static void write2(struct fsal_obj_handle *obj, bool bypass, fsal_async_cb done_cb,
		   struct fsal_io_arg *arg, void *caller_arg)
{
	struct spw_inode *inode = spw_handle_of(obj)->inode;
	fsal_status_t status = { ERR_FSAL_NO_ERROR, 0 };
	size_t amount = 0, bytes = 0;
	uint64_t began = spw_clock_ns();

	if (arg->state == NULL)
		status = spw_share_check(inode, FSAL_O_WRITE, bypass);
	for (int i = 0; i < arg->iov_count; i++)
		bytes += arg->iov[i].iov_len;
	if (!FSAL_IS_ERROR(status))
		status = take_room(inode, bytes);
	if (!FSAL_IS_ERROR(status)) {
		status = spw_status(spw_write(inode, arg->iov, arg->iov_count, arg->offset,
					      arg->fsal_stable, &amount));
		spw_space_done(bytes);
	}
	if (!FSAL_IS_ERROR(status))
		spw_drop_privileges(inode);
	arg->io_amount = amount;
	done_cb(obj, spw_counted(SPW_COUNTED_WRITE, began, status, amount), arg, caller_arg);
}

static fsal_status_t commit2(struct fsal_obj_handle *obj, off_t offset, size_t length)
{
	(void)offset;
	(void)length;
	return spw_status(spw_commit(spw_handle_of(obj)->inode));
}

static fsal_status_t seek2(struct fsal_obj_handle *obj, struct state_t *state,
			   struct io_info *info)
{
	bool hole = info->io_content.what == NFS4_CONTENT_HOLE;
	struct spw_inode *inode = spw_handle_of(obj)->inode;
	uint64_t offset = info->io_content.hole.di_offset;
	struct spw_attr attr;
	uint64_t found = 0;
	int rc;

	(void)state;
	if (!hole && info->io_content.what != NFS4_CONTENT_DATA)
		return fsalstat(ERR_FSAL_UNION_NOTSUPP, 0);
	rc = spw_getattr(inode, &attr);
	if (rc == 0 && offset >= attr.size) /* RFC 7862 section 15.11.3 */
		rc = ENXIO;
	if (rc != 0)
		return spw_status(rc);
	rc = spw_seek(inode, offset, hole ? SEEK_HOLE : SEEK_DATA, &found);
	if (rc == ENXIO) { /* only a hole is left */
		info->io_eof = true;
		return fsalstat(ERR_FSAL_NO_ERROR, 0);
	}
	info->io_eof = found >= attr.size;
	info->io_content.hole.di_offset = found;
	return spw_status(rc);
}

static fsal_status_t fallocate_(struct fsal_obj_handle *obj, struct state_t *state,
				uint64_t offset, uint64_t length, bool allocate)
{
	struct spw_inode *inode = spw_handle_of(obj)->inode;
	fsal_status_t status = { ERR_FSAL_NO_ERROR, 0 };

	(void)state;
	if (allocate)
		status = take_room(inode, length);
	if (FSAL_IS_ERROR(status))
		return status;
	status = spw_status(spw_allocate(inode, offset, length, allocate));
	if (allocate)
		spw_space_done(length);
	return status;
}

void spw_io_ops(struct fsal_obj_ops *ops)
{
	ops->read2 = read2;
	ops->write2 = write2;
	ops->commit2 = commit2;
	ops->seek2 = seek2;
	ops->fallocate = fallocate_;
}
