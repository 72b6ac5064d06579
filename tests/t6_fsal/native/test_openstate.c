/* Tests of open states against Ganesha's headers, without its library. */
#include "fake_namespace.h"

#include "openstate.h"
#include "share.h"

__thread struct req_op_context *op_ctx;
static int shares;

fsal_status_t spw_share_change(struct spw_inode *inode, fsal_openflags_t from, fsal_openflags_t to)
{
	(void)inode;
	shares += (to != FSAL_O_CLOSED) - (from != FSAL_O_CLOSED);
	return (fsal_status_t){ ERR_FSAL_NO_ERROR, 0 };
}

/* Open a file as open2 does. */
static struct state_t *opened(struct spw_inode *inode)
{
	struct fsal_export export = { 0 };
	struct state_t *state = spw_alloc_state(&export, STATE_TYPE_SHARE, NULL);

	(void)spw_share_change(inode, FSAL_O_CLOSED, FSAL_O_RDWR);
	spw_fd_hold(inode);
	assert(spw_writer_begin(inode, NULL) == 0);
	spw_state_opened(state, inode, FSAL_O_RDWR);
	spw_state_give_writer(state);
	assert(shares == 1 && inode->writers == 1 && inode->handles == 2);
	return state;
}

static void a_state_is_closed_before_it_is_freed(void)
{
	struct spw_inode *inode = fresh();
	struct spw_close close = { .is_plain = true };
	char stateid[SPW_STATEID_BYTES];
	struct state_t *state;
	bool told;

	atomic_store(&acknowledge_answer, SPW_ACK_WAITS);
	for (int is_closed = 0; is_closed < 2; is_closed++) {
		state = opened(inode);
		memset(state->stateid_other, 'x', sizeof(state->stateid_other));
		memcpy(stateid, state->stateid_other, sizeof(stateid));
		if (is_closed)
			spw_state_closed(state);
		spw_free_state(state);
		close.stateid = stateid;
		assert(spw_closing_try(inode->ino, &close, &told) == 0); /* it is in no chain */
		settle();
		assert(shares == 0 && inode->writers == 0 && inode->handles == 1);
		assert(inode->fd_users == 0 && ns.seals == is_closed + 1);
	}
	spw_inode_put(inode);
}

int main(int argc, char **argv)
{
	assert(argc == 2);
	fake_namespace_start(argv[1]);
	spw_closing_start(true, 0);
	a_state_is_closed_before_it_is_freed();
	puts("all passed");
	return 0;
}
