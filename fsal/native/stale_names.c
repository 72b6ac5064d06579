/* Names that another client changed before they were in Ganesha's cache: Ganesha is told to forget
 * them.
 */
#include "names.h"

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "ganesha.h"

struct directory {
	struct directory *next;
	uint64_t ino;
	uint64_t generation;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t work;
	pthread_t thread;
	const struct fsal_up_vector *up; /* NULL: the thread ends, or there is none */
	struct directory *first;
} stale_names = { .lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER };

/* The last name that this thread answered. directory 0: none, or it was checked. */
static _Thread_local struct {
	uint64_t directory;
	uint64_t ino;
	char name[NAME_MAX + 1];
} last;

/* ---- the thread that makes the upcalls ---- */

static void free_all(struct directory *first)
{
	while (first != NULL) {
		struct directory *next = first->next;

		gsh_free(first);
		first = next;
	}
}

static void *run(void *argument)
{
	(void)argument;
	pthread_mutex_lock(&stale_names.lock);
	while (stale_names.up != NULL) {
		const struct fsal_up_vector *up = stale_names.up;
		struct directory *first = stale_names.first;

		if (first == NULL) {
			pthread_cond_wait(&stale_names.work, &stale_names.lock);
			continue;
		}
		stale_names.first = NULL;
		pthread_mutex_unlock(&stale_names.lock);
		for (struct directory *at = first; at != NULL; at = at->next)
			spw_upcall_invalidate(up, at->ino, at->generation, FSAL_UP_INVALIDATE_CONTENT);
		free_all(first);
		pthread_mutex_lock(&stale_names.lock);
	}
	pthread_mutex_unlock(&stale_names.lock);
	return NULL;
}

int spw_stale_names_start(const struct fsal_up_vector *up)
{
	int rc;

	pthread_mutex_lock(&stale_names.lock);
	rc = pthread_create(&stale_names.thread, NULL, run, NULL);
	if (rc == 0)
		stale_names.up = up;
	pthread_mutex_unlock(&stale_names.lock);
	return rc;
}

void spw_stale_names_stop(void)
{
	struct directory *first;
	bool runs;

	pthread_mutex_lock(&stale_names.lock);
	runs = stale_names.up != NULL;
	stale_names.up = NULL;
	pthread_cond_signal(&stale_names.work);
	pthread_mutex_unlock(&stale_names.lock);
	if (runs)
		pthread_join(stale_names.thread, NULL);
	pthread_mutex_lock(&stale_names.lock);
	first = stale_names.first;
	stale_names.first = NULL;
	pthread_mutex_unlock(&stale_names.lock);
	free_all(first);
}

static void forget(uint64_t ino, uint64_t generation)
{
	struct directory *at;

	pthread_mutex_lock(&stale_names.lock);
	for (at = stale_names.first; at != NULL && at->ino != ino; at = at->next)
		;
	if (at == NULL && stale_names.up != NULL) {
		at = gsh_calloc(1, sizeof(*at));
		at->ino = ino;
		at->generation = generation;
		at->next = stale_names.first;
		stale_names.first = at;
		pthread_cond_signal(&stale_names.work);
	}
	pthread_mutex_unlock(&stale_names.lock);
}

/* ---- the threads that answer clients ---- */

void spw_stale_names_note(uint64_t directory, const char *name, uint64_t ino)
{
	last.directory = directory;
	last.ino = ino;
	strncpy(last.name, name, NAME_MAX); /* the namespace refuses longer names */
}

void spw_stale_names_check(uint64_t directory, uint64_t generation)
{
	if (last.directory != directory)
		return;
	last.directory = 0;
	if (spw_dentry_find(directory, last.name, (uint32_t)strlen(last.name)) != last.ino)
		forget(directory, generation);
}
