/* Look-ahead in the compound that Ganesha works on.
 *
 * Ganesha 4.3 runs a request with op_ctx inside its nfs_request_t, and the decoded arguments follow
 * it there (include/nfs_proto_data.h; MainNFSD/nfs_worker_thread.c, nfs_rpc_process_request).
 */
#include "closing.h"

#include <string.h>

#include "ganesha.h"

#include "nfs_fh.h"
#include "nfs_proto_data.h"

_Static_assert(offsetof(nfs_request_t, arg_nfs) ==
		       offsetof(nfs_request_t, op_context) + sizeof(struct req_op_context),
	       "the arguments follow the operation context");
_Static_assert(sizeof(((stateid4 *)0)->other) == SPW_STATEID_BYTES, "stateid");

const struct COMPOUND4args *spw_compound(void)
{
	if (op_ctx->nfs_vers != NFS_V4)
		return NULL;
	return &container_of(op_ctx, nfs_request_t, op_context)->arg_nfs.arg_compound4;
}

static bool is_same(const struct gsh_buffdesc *handle, const nfs_fh4 *theirs)
{
	const struct file_handle_v4 *fh = (const void *)theirs->nfs_fh4_val;

	/* Ganesha has checked the lengths of the handle that it works on, not of those that follow. */
	return theirs->nfs_fh4_len >= sizeof(*fh) + handle->len && fh->fs_len == handle->len &&
	       memcmp(fh->fsopaque, handle->addr, handle->len) == 0;
}

/* Fills the CLOSE of a stateid. All zero stands for the last stateid of the compound (RFC 8881
 * section 16.2.3.1.2). */
static void fill(struct spw_close *close, const stateid4 *stateid,
		 const struct spw_compound_place *place)
{
	static const char current[SPW_STATEID_BYTES];

	close->stateid = stateid->other;
	close->seqid = stateid->seqid;
	close->is_plain = !place->is_changed;
	close->is_current = memcmp(stateid->other, current, sizeof(current)) == 0;
	close->is_opened = place->is_opened;
}

/* Passes an OPEN. By a name it makes another file the current one. */
static void pass_open(const OPEN4args *open, struct spw_compound_place *place)
{
	if (open->claim.claim != CLAIM_FH && open->claim.claim != CLAIM_PREVIOUS)
		place->is_ours = false;
	if (open->share_access & OPEN4_SHARE_ACCESS_WRITE)
		place->is_opened = true;
	place->is_changed = true;
}

/* Passes an operation. Returns the stateid of which it ends the writing, or NULL. */
static const stateid4 *pass(const struct gsh_buffdesc *handle, const nfs_argop4 *op,
			    struct spw_compound_place *place)
{
	switch (op->argop) {
	case NFS4_OP_PUTFH:
		place->is_ours = is_same(handle, &op->nfs_argop4_u.opputfh.object);
		break;
	case NFS4_OP_PUTROOTFH:
	case NFS4_OP_PUTPUBFH:
	case NFS4_OP_RESTOREFH:
	case NFS4_OP_LOOKUP:
	case NFS4_OP_LOOKUPP:
	case NFS4_OP_CREATE:
		place->is_ours = false;
		break;
	case NFS4_OP_CLOSE:
		return &op->nfs_argop4_u.opclose.open_stateid;
	case NFS4_OP_OPEN_DOWNGRADE:
		if (!(op->nfs_argop4_u.opopen_downgrade.share_access & OPEN4_SHARE_ACCESS_WRITE))
			return &op->nfs_argop4_u.opopen_downgrade.open_stateid;
		break;
	case NFS4_OP_OPEN:
		pass_open(&op->nfs_argop4_u.opopen, place);
		break;
	case NFS4_OP_SEQUENCE:
	case NFS4_OP_RENEW:
	case NFS4_OP_GETATTR:
	case NFS4_OP_GETFH:
	case NFS4_OP_ACCESS:
	case NFS4_OP_READ:
	case NFS4_OP_COMMIT:
	case NFS4_OP_LOCKU:
	case NFS4_OP_VERIFY:
	case NFS4_OP_NVERIFY:
	case NFS4_OP_LAYOUTRETURN:
	case NFS4_OP_LAYOUTCOMMIT:
		break;
	default:
		place->is_changed = true;
		break;
	}
	return NULL;
}

bool spw_compound_next_close(const struct gsh_buffdesc *handle, struct spw_compound_place *place,
			     struct spw_close *close)
{
	const COMPOUND4args *compound = spw_compound();

	if (compound == NULL)
		return false;
	while (place->next < compound->argarray.argarray_len) {
		const nfs_argop4 *op = &compound->argarray.argarray_val[place->next++];
		const stateid4 *stateid = pass(handle, op, place);

		if (stateid != NULL && place->is_ours) {
			fill(close, stateid, place);
			return true;
		}
	}
	return false;
}
