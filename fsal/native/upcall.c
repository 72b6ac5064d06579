/* Upcalls to Ganesha's cache, which tell it what it must not believe any more. */
#include "names.h"

#include "handle.h"

static struct spw_fh handle_of(uint64_t ino, uint64_t generation)
{
	return (struct spw_fh){
		.magic = SPW_FH_MAGIC,
		.version = SPW_FH_VERSION,
		.volume_id = spw_python.volume_id,
		.ino = ino,
		.generation = generation,
	};
}

/* Ends with release_op_context(). */
static void begin(const struct fsal_up_vector *up, struct req_op_context *context)
{
	get_gsh_export_ref(up->up_gsh_export);
	init_op_context_simple(context, up->up_gsh_export, up->up_fsal_export);
}

/* Clearing the marks of an entry is not enough: other threads may be about to fill the entry with
 * what they asked for before the change. So the entry is made first, if there is none, and a thread
 * that wants to make one later finds it. Then its attributes are asked for, which waits for a
 * refresh that is under way. */
void spw_upcall_forget(const struct fsal_up_vector *up, uint64_t ino, uint64_t generation,
		       bool is_moved)
{
	struct fsal_export *export = up->up_fsal_export;
	uint32_t what = FSAL_UP_INVALIDATE_CACHE;
	struct spw_fh fh = handle_of(ino, generation);
	struct gsh_buffdesc key = { .addr = &fh, .len = sizeof(fh) };
	struct fsal_obj_handle *obj = NULL;
	struct req_op_context context;
	struct fsal_attrlist attrs;

	/* Every PUTFH asks for the parent again, so it is dropped only if it changed. */
	if (!is_moved)
		what &= ~FSAL_UP_INVALIDATE_PARENT;
	begin(up, &context);
	if (FSAL_IS_SUCCESS(export->exp_ops.create_handle(export, &key, &obj, NULL))) {
		fsal_prepare_attrs(&attrs, ATTR_CHANGE);
		(void)obj->obj_ops->getattrs(obj, &attrs);
		fsal_release_attrs(&attrs);
	} else {
		obj = NULL; /* it is gone */
	}
	(void)up->invalidate(up, &key, what);
	if (obj != NULL)
		obj->obj_ops->put_ref(obj);
	release_op_context();
}

void spw_upcall_forget_known(const struct fsal_up_vector *up, uint64_t ino)
{
	uint64_t generation = ino != 0 ? spw_inode_generation(ino) : 0;

	if (generation != 0)
		spw_upcall_forget(up, ino, generation, true);
}

void spw_upcall_invalidate(const struct fsal_up_vector *up, uint64_t ino, uint64_t generation,
			   uint32_t what)
{
	struct spw_fh fh = handle_of(ino, generation);
	struct gsh_buffdesc key = { .addr = &fh, .len = sizeof(fh) };

	(void)up->invalidate(up, &key, what);
}

void spw_upcall_release(const struct fsal_up_vector *up, uint64_t ino, uint64_t generation)
{
	struct spw_fh fh = handle_of(ino, generation);
	struct gsh_buffdesc key = { .addr = &fh, .len = sizeof(fh) };
	struct req_op_context context;

	/* Ganesha 4.3 sets none in this upcall, and needs one to release our handle. */
	begin(up, &context);
	(void)up->try_release(up, &key, 0);
	release_op_context();
}
