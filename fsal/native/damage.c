/* List of the files whose bytes are known to be lost.
 *
 * The namespace has a row for each, so that a restart does not take such a file for whole. This
 * list has those rows of the start and the losses since: an inode object may be freed and made
 * again before the file is emptied.
 */
#include "bytes.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct loss {
	uint64_t ino;
	bool is_noted; /* the namespace has a row for it */
};

static struct {
	pthread_mutex_t lock;
	struct loss *losses; /* in ascending order of inodes */
	size_t count;
} known = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Returns the place of an inode in the list, or the place where it belongs. */
static size_t place_locked(uint64_t ino)
{
	size_t low = 0, high = known.count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (known.losses[middle].ino < ino)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool is_at_locked(size_t place, uint64_t ino)
{
	return place < known.count && known.losses[place].ino == ino;
}

static void remember(uint64_t ino, bool is_noted)
{
	size_t place;

	pthread_mutex_lock(&known.lock);
	place = place_locked(ino);
	if (!is_at_locked(place, ino)) {
		known.losses = realloc(known.losses, (known.count + 1) * sizeof(*known.losses));
		if (known.losses == NULL)
			abort(); /* as Ganesha's own allocator does */
		memmove(&known.losses[place + 1], &known.losses[place],
			(known.count - place) * sizeof(*known.losses));
		known.count++;
	}
	known.losses[place] = (struct loss){ .ino = ino, .is_noted = is_noted };
	pthread_mutex_unlock(&known.lock);
}

static void forget(uint64_t ino)
{
	size_t place;

	pthread_mutex_lock(&known.lock);
	place = place_locked(ino);
	if (is_at_locked(place, ino)) {
		known.count--;
		memmove(&known.losses[place], &known.losses[place + 1],
			(known.count - place) * sizeof(*known.losses));
	}
	pthread_mutex_unlock(&known.lock);
}

int spw_damage_start(void)
{
	uint64_t page[256], after = 0;
	uint32_t count;
	int rc;

	do {
		rc = spw_namespace()->damages(after, page, 256, &count);
		if (rc != 0 || count == 0)
			return rc;
		for (uint32_t i = 0; i < count; i++)
			remember(page[i], true);
		after = page[count - 1];
	} while (count == 256);
	return 0;
}

void spw_damage_recall(struct spw_inode *inode)
{
	size_t place;

	pthread_mutex_lock(&known.lock);
	place = place_locked(inode->ino);
	if (is_at_locked(place, inode->ino)) {
		atomic_store(&inode->error, EIO);
		atomic_store(&inode->is_noted, known.losses[place].is_noted);
	}
	pthread_mutex_unlock(&known.lock);
}

void spw_damage_noted(struct spw_inode *inode)
{
	remember(inode->ino, true);
	atomic_store(&inode->is_noted, true);
}

void spw_damage_note(struct spw_inode *inode, const char *reason)
{
	int rc = spw_namespace()->damage(inode->ino, reason);
	/* ESTALE: the last name and the row are deleted, so nothing can take the file for whole. */
	bool is_noted = rc == 0 || rc == ESTALE;

	remember(inode->ino, is_noted);
	atomic_store(&inode->is_noted, is_noted);
}

int spw_damage_clear(struct spw_inode *inode)
{
	int rc = spw_namespace()->damage(inode->ino, NULL);

	if (rc != 0)
		return rc;
	atomic_store(&inode->is_noted, false);
	forget(inode->ino);
	return 0;
}
