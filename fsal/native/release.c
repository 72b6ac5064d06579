/* Release of files that lost their last name over the control socket: Ganesha lets go of them. */
#include "names.h"

#include <pthread.h>
#include <stdbool.h>

#include "ganesha.h"

#define MOST_TURNS 16u /* between two tries for a file that stays in use */

struct file {
	struct file *next;
	uint64_t ino;
	uint64_t generation;
	unsigned int turns; /* between its tries */
	unsigned int left;  /* until the next try */
};

static struct {
	pthread_mutex_t lock;
	struct file *first;
} in_use = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void add(struct file *file)
{
	pthread_mutex_lock(&in_use.lock);
	file->next = in_use.first;
	in_use.first = file;
	pthread_mutex_unlock(&in_use.lock);
}

static struct file *take_all(void)
{
	struct file *first;

	pthread_mutex_lock(&in_use.lock);
	first = in_use.first;
	in_use.first = NULL;
	pthread_mutex_unlock(&in_use.lock);
	return first;
}

/* Returns whether no handle is left. What Ganesha answers does not tell: a thread of its own may
 * have a handle and be about to make the entry. */
static bool is_released(const struct fsal_up_vector *up, uint64_t ino, uint64_t generation)
{
	if (spw_inode_generation(ino) != generation)
		return true;
	spw_upcall_release(up, ino, generation);
	return spw_inode_generation(ino) != generation;
}

void spw_release(const struct fsal_up_vector *up, uint64_t ino)
{
	uint64_t generation = spw_inode_generation(ino);
	struct file *file;

	if (generation == 0 || is_released(up, ino, generation))
		return;
	file = gsh_calloc(1, sizeof(*file));
	file->ino = ino;
	file->generation = generation;
	file->turns = file->left = 1;
	add(file);
}

void spw_release_again(const struct fsal_up_vector *up)
{
	struct file *file = take_all();

	while (file != NULL) {
		struct file *next = file->next;

		if (--file->left > 0) {
			add(file);
		} else if (is_released(up, file->ino, file->generation)) {
			gsh_free(file);
		} else {
			if (file->turns < MOST_TURNS)
				file->turns *= 2;
			file->left = file->turns;
			add(file);
		}
		file = next;
	}
}

void spw_release_end(void)
{
	struct file *file = take_all();

	while (file != NULL) {
		struct file *next = file->next;

		gsh_free(file);
		file = next;
	}
}
