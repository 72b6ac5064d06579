/* Share reservations (RFC 8881 section 9.7), counted in the inode object. */
#include "openstate.h"

_Static_assert(sizeof(struct fsal_share) <= sizeof(struct spw_shares), "room for the shares");

static struct fsal_share *share_of(struct spw_inode *inode)
{
	return (struct fsal_share *)&inode->shares;
}

fsal_status_t spw_share_check(struct spw_inode *inode, fsal_openflags_t access, bool bypass)
{
	fsal_status_t status;

	PTHREAD_MUTEX_lock(&inode->fd_lock);
	status = check_share_conflict(share_of(inode), access, bypass);
	PTHREAD_MUTEX_unlock(&inode->fd_lock);
	return status;
}

fsal_status_t spw_share_change(struct spw_inode *inode, fsal_openflags_t from, fsal_openflags_t to)
{
	bool takes_away = FSAL_O_NFS_FLAGS(to) != from && (FSAL_O_NFS_FLAGS(to) & ~from) == 0;
	fsal_status_t status = { ERR_FSAL_NO_ERROR, 0 };

	PTHREAD_MUTEX_lock(&inode->fd_lock);
	/* An owner's own shares count too (RFC 8881 section 9.7): an upgrade may conflict with the
	 * open that it upgrades. A downgrade or a close must not conflict. */
	if (!takes_away)
		status = check_share_conflict(share_of(inode), to, false);
	if (!FSAL_IS_ERROR(status))
		update_share_counters(share_of(inode), from, to);
	PTHREAD_MUTEX_unlock(&inode->fd_lock);
	return status;
}
