/* Has Ganesha forget names that another client changed before they were in its cache. */
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
} named = { .lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER };

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
	pthread_mutex_lock(&named.lock);
	while (named.up != NULL) {
		const struct fsal_up_vector *up = named.up;
		struct directory *first = named.first;

		if (first == NULL) {
			pthread_cond_wait(&named.work, &named.lock);
			continue;
		}
		named.first = NULL;
		pthread_mutex_unlock(&named.lock);
		for (struct directory *at = first; at != NULL; at = at->next)
			spw_upcall_doubt(up, at->ino, at->generation, FSAL_UP_INVALIDATE_CONTENT);
		free_all(first);
		pthread_mutex_lock(&named.lock);
	}
	pthread_mutex_unlock(&named.lock);
	return NULL;
}

int spw_named_start(const struct fsal_up_vector *up)
{
	int rc;

	pthread_mutex_lock(&named.lock);
	rc = pthread_create(&named.thread, NULL, run, NULL);
	if (rc == 0)
		named.up = up;
	pthread_mutex_unlock(&named.lock);
	return rc;
}

void spw_named_stop(void)
{
	struct directory *first;
	bool runs;

	pthread_mutex_lock(&named.lock);
	runs = named.up != NULL;
	named.up = NULL;
	pthread_cond_signal(&named.work);
	pthread_mutex_unlock(&named.lock);
	if (runs)
		pthread_join(named.thread, NULL);
	pthread_mutex_lock(&named.lock);
	first = named.first;
	named.first = NULL;
	pthread_mutex_unlock(&named.lock);
	free_all(first);
}

static void forget(uint64_t ino, uint64_t generation)
{
	struct directory *at;

	pthread_mutex_lock(&named.lock);
	for (at = named.first; at != NULL && at->ino != ino; at = at->next)
		;
	if (at == NULL && named.up != NULL) {
		at = gsh_calloc(1, sizeof(*at));
		at->ino = ino;
		at->generation = generation;
		at->next = named.first;
		named.first = at;
		pthread_cond_signal(&named.work);
	}
	pthread_mutex_unlock(&named.lock);
}

/* ---- the threads that answer clients ---- */

void spw_named(uint64_t directory, const char *name, uint64_t ino)
{
	last.directory = directory;
	last.ino = ino;
	strncpy(last.name, name, NAME_MAX); /* the namespace refuses longer names */
}

void spw_named_check(uint64_t directory, uint64_t generation)
{
	if (last.directory != directory)
		return;
	last.directory = 0;
	if (spw_dentry_find(directory, last.name, (uint32_t)strlen(last.name)) != last.ino)
		forget(directory, generation);
}
