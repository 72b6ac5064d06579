/* Parts of an open state: its share, its descriptor, its writer. */
#include "openstate.h"

#include <pthread.h>

#include "abstract_atomic.h"
#include "bytes.h"
#include "handle.h"
#include "seal.h"

struct state_t *spw_alloc_state(struct fsal_export *export, enum state_type type,
				struct state_t *related)
{
	struct state_t *state = gsh_calloc(1, sizeof(struct spw_state));

#if FSAL_MAJOR_VERSION == 11
	return init_state(state, export, type, related);
#else
	(void)export;
	return init_state(state, spw_free_state, type, related);
#endif
}

/* Ganesha 4.3 frees a state without close2 if its cache fails after open2, for example to read the
 * attributes of the directory again (mdcache_file.c, mdcache_open2; nfs4_op_open.c, open4_ex). The
 * file would stay open for ever, and closing.c would read the freed state. */
void spw_free_state(struct state_t *state)
{
	spw_state_closed(state);
	gsh_free(spw_state_of(state));
}

#if FSAL_MAJOR_VERSION == 11
static void free_state_of(struct fsal_export *export, struct state_t *state)
{
	(void)export;
	spw_free_state(state);
}
#endif

void spw_state_ops(struct export_ops *ops)
{
	ops->alloc_state = spw_alloc_state;
#if FSAL_MAJOR_VERSION == 11
	ops->free_state = free_state_of; /* API 13 asks the state itself (init_state) */
#endif
}

/* Returns what an open may do, in the flags of opened.c. */
static uint32_t access_of(fsal_openflags_t openflags)
{
	return (openflags & FSAL_O_READ ? SPW_OPENED_READS : 0) |
	       (openflags & FSAL_O_WRITE ? SPW_OPENED_WRITES : 0);
}

void spw_state_opened(struct state_t *state, struct spw_inode *inode, fsal_openflags_t openflags)
{
	struct spw_state *self = spw_state_of(state);

	/* TRUNC and RECLAIM are left out: the next upgrade would truncate again. */
	self->openflags = FSAL_O_NFS_FLAGS(openflags);
	if (self->inode == NULL) {
		spw_inode_hold(inode);
		self->inode = inode;
		spw_opening_begin(&self->opening, inode->ino, state->stateid_other,
				  &state->state_seqid);
	}
	spw_opened_set(&self->opened, inode->ino, spw_calling(), access_of(openflags));
}

void spw_state_give_writer(struct state_t *state)
{
	struct spw_state *self = spw_state_of(state);

	if (spw_closing_begin(&self->closing, self->inode, state->stateid_other,
			      &state->state_seqid))
		spw_writer_end(self->inode);
}

void spw_state_end_writer(struct state_t *state)
{
	struct spw_state *self = spw_state_of(state);

	if (spw_closing_end(&self->closing))
		spw_writer_end(self->inode);
}

void spw_state_closed(struct state_t *state)
{
	struct spw_state *self = spw_state_of(state);
	fsal_openflags_t old = self->openflags;

	/* A lock state opens nothing of its own. */
	if (self->inode == NULL)
		return;
	self->openflags = FSAL_O_CLOSED;
	spw_opening_end(&self->opening);
	spw_opened_set(&self->opened, self->inode->ino, NULL, 0);
	(void)spw_share_change(self->inode, old, FSAL_O_CLOSED);
	spw_state_end_writer(state);
	spw_fd_release(self->inode);
	spw_inode_put(self->inode);
	self->inode = NULL;
}

#if FSAL_MAJOR_VERSION == 11
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct spw_state *held;

/* Frees the deleted states that nothing else has. They are in no table, so nothing finds them. */
static void free_deleted(void)
{
	struct spw_state *done = NULL, **at, *self;

	pthread_mutex_lock(&lock);
	for (at = &held; (self = *at) != NULL;) {
		if (atomic_fetch_int32_t(&self->state.state_refcount) > 1) {
			at = &self->next;
			continue;
		}
		*at = self->next;
		self->next = done;
		done = self;
	}
	pthread_mutex_unlock(&lock);
	while ((self = done) != NULL) {
		done = self->next;
		pthread_mutex_destroy(&self->state.state_mutex);
		spw_free_state(&self->state);
	}
}

/* In Ganesha 4.3 the request that lets go of a state last frees it through its own export
 * (nfs4_state_id.c, dec_nfs4_state_ref). A FREE_STATEID has no export before it found the state. If
 * the CLOSE of the same file deletes the state meanwhile, the server would die of a null pointer
 * (Ganesha's issue 904; generic/089 of xfstests). Of the calls of close2, only that of
 * _state_del_locked has a state that was counted and has lost its file. */
void spw_state_deleted(struct state_t *state)
{
	struct spw_state *self = spw_state_of(state);

	if (state->state_obj != NULL || atomic_fetch_int32_t(&state->state_refcount) == 0)
		return;
	free_deleted();
	(void)atomic_inc_int32_t(&state->state_refcount);
	pthread_mutex_lock(&lock);
	self->next = held;
	held = self;
	pthread_mutex_unlock(&lock);
}
#else
void spw_state_deleted(struct state_t *state)
{
	(void)state;
}
#endif
