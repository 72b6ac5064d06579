/* Tests of open states against Ganesha's headers, without its library. */
#include "fake_namespace.h"

#include <sanitizer/asan_interface.h>

#include "openstate.h"

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

#if FSAL_MAJOR_VERSION == 11
/* Make a lock state as Ganesha's state_add does; one reference is that of its tables. */
static struct state_t *added(int32_t references)
{
	struct fsal_export export = { 0 };
	struct state_t *state = spw_alloc_state(&export, STATE_TYPE_LOCK, NULL);

	pthread_mutex_init(&state->state_mutex, NULL);
	state->state_refcount = references;
	return state;
}

/* Let go of a state as Ganesha does, which must not be the last to have it. */
static void let_go(struct state_t *state)
{
	assert(atomic_dec_int32_t(&state->state_refcount) > 0);
}

static void a_deleted_state_is_freed_when_no_request_has_it(void)
{
	struct state_t *raced = added(2), *other = added(1), *last = added(1);

	spw_state_deleted(raced);
	let_go(raced);
	spw_state_deleted(other);
	let_go(other);
	assert(!__asan_address_is_poisoned(raced)); /* a FREE_STATEID still has it */
	let_go(raced);
	spw_state_deleted(last);
	let_go(last);
	assert(__asan_address_is_poisoned(raced) && __asan_address_is_poisoned(other));
}

static void a_state_that_is_only_closed_is_not_held(void)
{
	struct fsal_obj_handle obj = { 0 };
	struct state_t *kept = added(1), *never_added = added(0);

	kept->state_obj = &obj;
	spw_state_deleted(kept);
	spw_state_deleted(never_added);
	assert(kept->state_refcount == 1 && never_added->state_refcount == 0);
	spw_free_state(kept);
	spw_free_state(never_added);
}
#endif

int main(int argc, char **argv)
{
	assert(argc == 2);
	fake_namespace_start(argv[1]);
	spw_closing_start(true, 0);
	a_state_is_closed_before_it_is_freed();
#if FSAL_MAJOR_VERSION == 11
	a_deleted_state_is_freed_when_no_request_has_it();
	a_state_that_is_only_closed_is_not_held();
#endif
	puts("all passed");
	return 0;
}
