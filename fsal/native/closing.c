/* Queue of CLOSEs that are held back until the bucket has the file. It uses neither Ganesha nor
 * Python.
 */
#include "closing.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "bridge.h"
#include "seal.h"
#include "util.h"

#define CHAINS 1024u
/* A client asks ten times a second. Between two questions to the namespace it gets the last answer:
 * a CLOSE that has waited for long hears of the end a little later, and costs next to nothing. */
#define ASK_LEAST_MS 50u
#define ASK_MOST_MS 2000u
#define APPROVAL_SHARE 16u /* of the time that it has waited */
/* Clients try again within 15 s. After a longer pause the client had given up, and this CLOSE is
 * another one. */
#ifndef SPW_CLOSING_ABANDONED_MS
#define SPW_CLOSING_ABANDONED_MS 60000u
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct spw_closing *chains[CHAINS];
static bool wanted;
static uint32_t limit_ms;

void spw_closing_start(bool is_wanted, uint32_t wait_ms)
{
	wanted = is_wanted;
	limit_ms = wait_ms;
}

bool spw_closing_wanted(void)
{
	return wanted;
}

bool spw_closing_begin(struct spw_closing *closing, struct spw_inode *inode, const char *stateid,
		       const volatile uint32_t *seqid)
{
	if (wanted) {
		pthread_mutex_lock(&lock);
		if (closing->inode == NULL) {
			closing->inode = inode;
			closing->stateid = stateid;
			closing->seqid = seqid;
			closing->next = chains[inode->ino % CHAINS];
			chains[inode->ino % CHAINS] = closing;
		}
		closing->began_ms = 0;
		pthread_mutex_unlock(&lock);
	}
	return atomic_exchange(&closing->writes, true);
}

bool spw_closing_end(struct spw_closing *closing)
{
	if (wanted) {
		pthread_mutex_lock(&lock);
		if (closing->inode != NULL) {
			struct spw_closing **at = &chains[closing->inode->ino % CHAINS];

			while (*at != closing)
				at = &(*at)->next;
			*at = closing->next;
			closing->inode = NULL;
		}
		pthread_mutex_unlock(&lock);
	}
	return atomic_exchange(&closing->writes, false);
}

/* Returns the open that a CLOSE names, or NULL. With an old stateid the CLOSE is of an open that the
 * client has replaced since: Ganesha refuses it. */
static struct spw_closing *find_locked(uint64_t ino, const struct spw_close *close)
{
	struct spw_closing *closing = chains[ino % CHAINS];

	while (closing != NULL && (closing->inode->ino != ino ||
				   memcmp(closing->stateid, close->stateid, SPW_STATEID_BYTES) != 0))
		closing = closing->next;
	if (closing != NULL && close->seqid != 0 && (int32_t)(close->seqid - *closing->seqid) < 0)
		return NULL;
	return closing;
}

/* Begins a try. Returns whether the namespace is to be asked. */
static bool begin_locked(struct spw_closing *closing)
{
	uint64_t now_ms = spw_clock_ms(), pause_ms, waited_ms;

	if (closing->began_ms == 0 || now_ms - closing->tried_ms > SPW_CLOSING_ABANDONED_MS) {
		closing->began_ms = now_ms;
		closing->ask_ms = 0;
		closing->told = false;
	}
	closing->tried_ms = now_ms;
	if (now_ms < closing->ask_ms)
		return false;
	waited_ms = now_ms - closing->began_ms;
	pause_ms = waited_ms / APPROVAL_SHARE;
	pause_ms = pause_ms < ASK_LEAST_MS ? ASK_LEAST_MS : pause_ms;
	pause_ms = pause_ms > ASK_MOST_MS ? ASK_MOST_MS : pause_ms;
	/* The error needs an answer of its own, and must not come late for want of one. */
	if (waited_ms < limit_ms && pause_ms > limit_ms - waited_ms)
		pause_ms = limit_ms - waited_ms;
	closing->ask_ms = now_ms + pause_ms;
	return true;
}

/* Takes the answer of the namespace. *ended: an inode whose writer the caller must end. *told:
 * whether it is the first error. */
static int answered_locked(struct spw_closing *closing, uint32_t answer, bool is_plain,
			   struct spw_inode **ended, bool *told)
{
	bool fails;

	if (answer == SPW_ACK_LOCAL)
		return 0;
	if (!is_plain)
		return ENOTSUP;
	if (answer == SPW_ACK_STORED)
		return 0;
	if (atomic_exchange(&closing->writes, false)) {
		spw_inode_hold(closing->inode);
		*ended = closing->inode;
	}
	fails = answer == SPW_ACK_FAILED ||
		(limit_ms != 0 && spw_clock_ms() - closing->began_ms >= limit_ms);
	*told = fails && !closing->told;
	closing->told = fails;
	return fails ? EIO : EAGAIN;
}

static bool has_writer(uint64_t ino)
{
	struct spw_closing *closing;

	pthread_mutex_lock(&lock);
	closing = chains[ino % CHAINS];
	while (closing != NULL && closing->inode->ino != ino)
		closing = closing->next;
	pthread_mutex_unlock(&lock);
	return closing != NULL;
}

/* Refuses a CLOSE whose open is not known before the compound runs, if it may have to wait. */
static int try_current(uint64_t ino, const struct spw_close *close)
{
	uint32_t answer;

	if (!close->is_opened && !has_writer(ino))
		return 0;
	if (spw_namespace()->acknowledged(ino, &answer) != 0)
		return EAGAIN;
	return answer == SPW_ACK_LOCAL ? 0 : ENOTSUP;
}

int spw_closing_try(uint64_t ino, const struct spw_close *close, bool *told)
{
	struct spw_inode *ended = NULL;
	struct spw_closing *closing;
	bool asks = false;
	uint32_t answer;
	int rc = 0;

	*told = false;
	if (close->is_current)
		return try_current(ino, close);
	pthread_mutex_lock(&lock);
	closing = find_locked(ino, close);
	if (closing != NULL) {
		asks = begin_locked(closing);
		rc = closing->told ? EIO : EAGAIN;
	}
	pthread_mutex_unlock(&lock);
	/* The lock is not held across the call. */
	if (asks && spw_namespace()->acknowledged(ino, &answer) == 0) {
		pthread_mutex_lock(&lock);
		closing = find_locked(ino, close);
		/* If the state ended meanwhile, as with its lease, or its owner opened the file
		 * again, the answer is not of the open that is there now. */
		rc = closing == NULL || closing->began_ms == 0
			     ? EAGAIN
			     : answered_locked(closing, answer, close->is_plain, &ended, told);
		pthread_mutex_unlock(&lock);
	}
	if (ended != NULL) {
		spw_writer_end(ended);
		spw_inode_put(ended);
	}
	return rc;
}
