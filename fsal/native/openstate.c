/* Keeps what an open state has: its share, its descriptor, its writer. */
#include "openstate.h"

#include "caller.h"
#include "fd.h"
#include "share.h"
#include "writer.h"

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

/* Returns what an open may do, in the flags of opened.h. */
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
	spw_opened_set(&self->opened, self->inode->ino, NULL, 0);
	(void)spw_share_change(self->inode, old, FSAL_O_CLOSED);
	spw_state_end_writer(state);
	spw_fd_release(self->inode);
	spw_inode_put(self->inode);
	self->inode = NULL;
}
