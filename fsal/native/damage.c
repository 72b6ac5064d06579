/* Files whose bytes are known to be lost. The namespace has a row for each, so that a restart does not
 * take one for whole; here is what it had at the start. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"

static struct {
	pthread_mutex_t lock;
	uint64_t *inos; /* in ascending order */
	size_t count;
} at_start = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int compare(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return left < right ? -1 : left > right;
}

static uint64_t *find_locked(uint64_t ino)
{
	if (at_start.count == 0)
		return NULL;
	return bsearch(&ino, at_start.inos, at_start.count, sizeof(ino), compare);
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
		pthread_mutex_lock(&at_start.lock);
		at_start.inos = realloc(at_start.inos, (at_start.count + count) * sizeof(*page));
		if (at_start.inos == NULL)
			abort();
		memcpy(at_start.inos + at_start.count, page, count * sizeof(*page));
		at_start.count += count;
		pthread_mutex_unlock(&at_start.lock);
		after = page[count - 1];
	} while (count == 256);
	return 0;
}

void spw_damage_recall(struct spw_inode *inode)
{
	pthread_mutex_lock(&at_start.lock);
	if (find_locked(inode->ino) != NULL) {
		atomic_store(&inode->error, EIO);
		atomic_store(&inode->is_noted, true);
	}
	pthread_mutex_unlock(&at_start.lock);
}

void spw_damage_note(struct spw_inode *inode, const char *reason)
{
	int rc = spw_namespace()->damage(inode->ino, reason);

	/* ESTALE: its last name and its row are gone, and nothing can take it for whole. */
	atomic_store(&inode->is_noted, rc == 0 || rc == ESTALE);
}

int spw_damage_clear(struct spw_inode *inode)
{
	int rc = spw_namespace()->damage(inode->ino, NULL);
	uint64_t *at;

	if (rc != 0)
		return rc;
	atomic_store(&inode->is_noted, false);
	pthread_mutex_lock(&at_start.lock);
	at = find_locked(inode->ino);
	if (at != NULL) {
		at_start.count--;
		memmove(at, at + 1, (char *)(at_start.inos + at_start.count) - (char *)at);
	}
	pthread_mutex_unlock(&at_start.lock);
	return 0;
}
