/* Keeps OPENs and CLOSEs of one open state apart. It uses neither Ganesha nor Python. */
#include "closing.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "util.h"

#define CHAINS 1024u
#define LOOK_NS 200000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct spw_opening *chains[CHAINS];

static uint32_t seqid_of(const struct spw_opening *opening)
{
	return __atomic_load_n(opening->seqid, __ATOMIC_ACQUIRE);
}

/* Returns whether an OPEN has changed the state, and its seqid does not show that yet. */
static bool is_due_locked(const struct spw_opening *opening, uint64_t now_ms)
{
	return (int32_t)(opening->due_seqid - seqid_of(opening)) > 0 && now_ms < opening->due_ms;
}

void spw_opening_begin(struct spw_opening *opening, uint64_t ino, const char *stateid,
		       const volatile uint32_t *seqid)
{
	pthread_mutex_lock(&lock);
	opening->ino = ino;
	opening->stateid = stateid;
	opening->seqid = seqid;
	opening->due_seqid = seqid_of(opening) + 1;
	opening->due_ms = spw_clock_ms() + SPW_OPENING_MS;
	opening->closing_ms = 0;
	opening->next = chains[ino % CHAINS];
	chains[ino % CHAINS] = opening;
	pthread_mutex_unlock(&lock);
}

bool spw_opening_again(struct spw_opening *opening, bool is_downgrade)
{
	uint64_t now_ms = spw_clock_ms();
	bool may;

	pthread_mutex_lock(&lock);
	may = is_downgrade || now_ms >= opening->closing_ms;
	if (may) {
		if (!is_due_locked(opening, now_ms))
			opening->due_seqid = seqid_of(opening);
		opening->due_seqid++;
		opening->due_ms = now_ms + SPW_OPENING_MS;
		opening->closing_ms = 0;
	}
	pthread_mutex_unlock(&lock);
	return may;
}

void spw_opening_failed(struct spw_opening *opening)
{
	pthread_mutex_lock(&lock);
	opening->due_seqid--;
	pthread_mutex_unlock(&lock);
}

void spw_opening_end(struct spw_opening *opening)
{
	struct spw_opening **at;

	pthread_mutex_lock(&lock);
	at = &chains[opening->ino % CHAINS];
	while (*at != opening)
		at = &(*at)->next;
	*at = opening->next;
	pthread_mutex_unlock(&lock);
}

/* Returns whether the CLOSE must wait for an OPEN. If not, no OPEN changes its state any more. */
static bool close_locked(struct spw_opening *opening, uint32_t seqid, uint64_t now_ms)
{
	uint32_t newest = seqid_of(opening);

	if (seqid != 0 && (int32_t)(seqid - newest) < 0)
		return false; /* Ganesha refuses it: OLD_STATEID. */
	if (is_due_locked(opening, now_ms))
		return true;
	if (seqid == 0 || seqid == newest)
		opening->closing_ms = now_ms + SPW_OPENING_MS;
	return false;
}

void spw_opening_close(uint64_t ino, const struct spw_close *close)
{
	const struct timespec look = { .tv_nsec = LOOK_NS };
	uint64_t now_ms = spw_clock_ms(), due_ms = now_ms + SPW_OPENING_MS;
	bool waits = true;

	while (waits && now_ms < due_ms) {
		struct spw_opening *opening;

		pthread_mutex_lock(&lock);
		opening = chains[ino % CHAINS];
		while (opening != NULL &&
		       (opening->ino != ino ||
			memcmp(opening->stateid, close->stateid, SPW_STATEID_BYTES) != 0))
			opening = opening->next;
		waits = opening != NULL && close_locked(opening, close->seqid, now_ms);
		pthread_mutex_unlock(&lock);
		if (waits)
			(void)nanosleep(&look, NULL);
		now_ms = spw_clock_ms();
	}
}
