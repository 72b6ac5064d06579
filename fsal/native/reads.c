/* Bounded list of the files that were read, of which the namespace is told. */
#include "bytes.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "util.h"

#define FLUSH_SECONDS 10
#define KEPT 8192u
#define BATCH 512u
#define NS 1000000000LL

static struct {
	pthread_mutex_t lock;
	unsigned int count;
	struct spw_read reads[KEPT];
} noted = { .lock = PTHREAD_MUTEX_INITIALIZER };

void spw_reads_note(struct spw_inode *inode)
{
	struct timespec now;
	uint32_t minute;

	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	minute = (uint32_t)(now.tv_sec / 60);
	if (atomic_load_explicit(&inode->read_minute, memory_order_relaxed) == minute ||
	    atomic_exchange_explicit(&inode->read_minute, minute, memory_order_relaxed) == minute)
		return;
	pthread_mutex_lock(&noted.lock);
	if (noted.count < KEPT)
		noted.reads[noted.count++] =
			(struct spw_read){ .ino = inode->ino, .read_ns = minute * 60 * NS };
	pthread_mutex_unlock(&noted.lock);
}

/* Takes what was noted last. An inode may be in it twice, because its object was made again. */
static unsigned int take(struct spw_read *reads)
{
	unsigned int count;

	pthread_mutex_lock(&noted.lock);
	count = noted.count < BATCH ? noted.count : BATCH;
	noted.count -= count;
	for (unsigned int i = 0; i < count; i++)
		reads[i] = noted.reads[noted.count + i];
	pthread_mutex_unlock(&noted.lock);
	return count;
}

static int by_ino_latest_first(const void *a, const void *b)
{
	const struct spw_read *one = a, *other = b;

	if (one->ino != other->ino)
		return one->ino < other->ino ? -1 : 1;
	return one->read_ns > other->read_ns ? -1 : one->read_ns < other->read_ns;
}

void spw_reads_flush(void)
{
	struct spw_read reads[BATCH];
	unsigned int count, kept;

	while ((count = take(reads)) > 0) {
		qsort(reads, count, sizeof(*reads), by_ino_latest_first);
		kept = 1;
		for (unsigned int i = 1; i < count; i++)
			if (reads[i].ino != reads[kept - 1].ino)
				reads[kept++] = reads[i];
		spw_namespace()->note_reads(reads, kept);
	}
}

static void *flusher(void *argument)
{
	const struct timespec pause = { .tv_sec = FLUSH_SECONDS };

	(void)argument;
	for (;;) {
		nanosleep(&pause, NULL);
		spw_reads_flush();
	}
	return NULL;
}

int spw_reads_start(void)
{
	return spw_thread_start(flusher, NULL);
}
