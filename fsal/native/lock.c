/* Byte-range locks: Ganesha decides who gets one and tells us, so that those may wait who would be
 * denied (lockwait.h). */
#include "openstate.h"

#include <string.h>

#include "nfs_proto_data.h"

#include "handle.h"

/* Returns a lock as Ganesha describes it. */
static struct spw_lock lock_of(struct fsal_obj_handle *obj, const struct state_t *state,
			       const state_owner_t *owner, const fsal_lock_param_t *param)
{
	struct spw_lock lock = {
		.ino = spw_handle_of(obj)->fh.ino,
		.first = param->lock_start,
		.last = param->lock_length == 0 ? UINT64_MAX
						: param->lock_start + param->lock_length - 1,
		.owner = spw_lock_owner(owner->so_owner.so_nfs4_owner.so_clientid,
					owner->so_owner_val, (uint32_t)owner->so_owner_len),
		.is_exclusive = param->lock_type == FSAL_LOCK_W,
	};

	memcpy(lock.stateid, state->stateid_other, sizeof(lock.stateid));
	return lock;
}

/* Takes note of what Ganesha does with a lock, under its lock over the file's states. It has found no
 * lock in the way, and we know of no others. */
static fsal_status_t lock_op2(struct fsal_obj_handle *obj, struct state_t *state, void *owner,
			      fsal_lock_op_t lock_op, fsal_lock_param_t *param,
			      fsal_lock_param_t *conflict)
{
	struct spw_lock lock;

	if (conflict != NULL)
		conflict->lock_type = FSAL_NO_LOCK;
	if (state == NULL || (lock_op != FSAL_OP_LOCK && lock_op != FSAL_OP_UNLOCK))
		return fsalstat(ERR_FSAL_NO_ERROR, 0);
	lock = lock_of(obj, state, owner, param);
	if (lock_op == FSAL_OP_LOCK)
		spw_lock_granted(&lock);
	else
		spw_lock_released(&lock);
	return fsalstat(ERR_FSAL_NO_ERROR, 0);
}

/* Fills who asks for a lock. */
static void fill_locker(struct spw_lock *wanted, const locker4 *locker)
{
	const open_to_lock_owner4 *named = &locker->locker4_u.open_owner;

	wanted->is_by_state = !locker->new_lock_owner;
	if (wanted->is_by_state)
		memcpy(wanted->stateid, locker->locker4_u.lock_owner.lock_stateid.other,
		       sizeof(wanted->stateid));
	else
		/* The client's number is that of the session (RFC 8881 section 18.10.3). */
		wanted->owner = spw_lock_owner(*op_ctx->clientid, named->lock_owner.owner.owner_val,
					       named->lock_owner.owner.owner_len);
}

bool spw_lock_is_waited_for(uint64_t ino, struct spw_lock *wanted)
{
	const COMPOUND4args *compound = spw_compound();
	const nfs_argop4 *ops;
	const LOCK4args *lock;

	if (compound == NULL || compound->argarray.argarray_len != 3)
		return false;
	ops = compound->argarray.argarray_val;
	if (ops[2].argop != NFS4_OP_LOCK || ops[0].argop != NFS4_OP_SEQUENCE)
		return false;
	lock = &ops[2].nfs_argop4_u.oplock;
	if ((lock->locktype != READW_LT && lock->locktype != WRITEW_LT) || lock->reclaim ||
	    lock->length == 0)
		return false;
	*wanted = (struct spw_lock){
		.ino = ino, .first = lock->offset, .is_exclusive = lock->locktype == WRITEW_LT,
	};
	/* Ganesha refuses a range that ends beyond 64 bits, and takes all ones for the end of the file. */
	if (__builtin_add_overflow(lock->offset, lock->length - 1, &wanted->last) ||
	    lock->length == UINT64_MAX)
		wanted->last = UINT64_MAX;
	fill_locker(wanted, &lock->locker);
	return true;
}

bool spw_lock_is_asked(void)
{
	SVCXPRT *connection = container_of(op_ctx, nfs_request_t, op_context)->svc.rq_xprt;

	/* Ganesha's threads set it with atomic operations. */
	return !(__atomic_load_n(&connection->xp_flags, __ATOMIC_RELAXED) & SVC_XPRT_FLAG_DESTROYED);
}

void spw_lock_ops(struct fsal_obj_ops *ops)
{
	ops->lock_op2 = lock_op2;
}
