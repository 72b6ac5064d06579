/* Looks ahead in the compound that Ganesha works on.
 *
 * Ganesha 4.3 runs a request with op_ctx inside its nfs_request_t, and the decoded arguments follow
 * it there (include/nfs_proto_data.h; MainNFSD/nfs_worker_thread.c, nfs_rpc_process_request). */
#include "compound.h"

#include <string.h>

#include "nfs_fh.h"
#include "nfs_proto_data.h"

_Static_assert(offsetof(nfs_request_t, arg_nfs) ==
		       offsetof(nfs_request_t, op_context) + sizeof(struct req_op_context),
	       "the arguments follow the operation context");
_Static_assert(sizeof(((stateid4 *)0)->other) == SPW_STATEID_BYTES, "stateid");

static bool is_same(const struct gsh_buffdesc *handle, const nfs_fh4 *theirs)
{
	const struct file_handle_v4 *fh = (const void *)theirs->nfs_fh4_val;

	/* Ganesha has checked the lengths of the handle that it works on, not of those that follow. */
	return theirs->nfs_fh4_len >= sizeof(*fh) + handle->len && fh->fs_len == handle->len &&
	       memcmp(fh->fsopaque, handle->addr, handle->len) == 0;
}

bool spw_compound_closes(const struct gsh_buffdesc *handle, struct spw_close *close)
{
	const nfs_request_t *request = container_of(op_ctx, nfs_request_t, op_context);
	const COMPOUND4args *compound = &request->arg_nfs.arg_compound4;
	bool is_ours = false, is_plain = true;
	const stateid4 *stateid;

	if (op_ctx->nfs_vers != NFS_V4)
		return false;
	for (u_int i = 0; i < compound->argarray.argarray_len; i++) {
		const nfs_argop4 *op = &compound->argarray.argarray_val[i];

		switch (op->argop) {
		case NFS4_OP_PUTFH:
			is_ours = is_same(handle, &op->nfs_argop4_u.opputfh.object);
			break;
		case NFS4_OP_PUTROOTFH:
		case NFS4_OP_PUTPUBFH:
		case NFS4_OP_RESTOREFH:
		case NFS4_OP_LOOKUP:
		case NFS4_OP_LOOKUPP:
		case NFS4_OP_CREATE:
			is_ours = false;
			break;
		case NFS4_OP_OPEN_DOWNGRADE:
		case NFS4_OP_CLOSE:
			stateid = op->argop == NFS4_OP_CLOSE
					  ? &op->nfs_argop4_u.opclose.open_stateid
					  : &op->nfs_argop4_u.opopen_downgrade.open_stateid;
			if (!is_ours || (op->argop == NFS4_OP_OPEN_DOWNGRADE &&
					 (op->nfs_argop4_u.opopen_downgrade.share_access &
					  OPEN4_SHARE_ACCESS_WRITE)))
				break;
			close->stateid = stateid->other;
			close->seqid = stateid->seqid;
			close->is_plain = is_plain;
			return true;
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
			is_plain = false;
			break;
		}
	}
	return false;
}
