/* Threads of the control socket: the one that moves bytes, the workers, and the queue between them.
 *
 * `lock` guards the queue and all peers. A thread holds it for copies, also those of an answer from
 * memory, and for system calls that do not wait, never while it answers another request.
 */
#define _GNU_SOURCE
#include "control.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "util.h"

#define PEERS 32u
#define WORKERS 13u /* one of them waits for what the hydrator should bring */
#define REFUSED_MS 100u /* without descriptors, until the next peer is let in */
#define LISTENER 1u
#define FIRST_PEER 2u /* among what is polled */

struct job {
	struct job *next;
	struct spw_peer *from;
	struct spw_control_request asked;
	_Alignas(8) uint8_t frame[];
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t work;
	struct job *first, **last;
	bool ending;
	bool is_open;
	int directory, listener, wake;
	uint64_t refused_ms; /* when no peer could be let in; 0: never */
	spw_control_serve_fn serve;
	spw_control_tell_fn tell;
	pthread_t mover, workers[WORKERS];
	struct spw_peer peers[PEERS];
} control = { .lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER };

static void wake_mover(void)
{
	uint64_t one = 1;
	ssize_t written = write(control.wake, &one, sizeof(one));

	(void)written; /* it fails if the counter is full: then the thread is awake */
}

/* ---- workers ---- */

/* Returns the next job, or NULL when the control socket closes. Requests that are queued then were
 * not begun: their peers ask again. */
static struct job *next_locked(void)
{
	struct job *job;

	while (control.first == NULL && !control.ending)
		pthread_cond_wait(&control.work, &control.lock);
	if (control.ending)
		return NULL;
	job = control.first;
	control.first = job->next;
	if (control.first == NULL)
		control.last = &control.first;
	return job;
}

static void *work(void *argument)
{
	_Alignas(16) uint8_t data[SPW_CONTROL_DATA_BYTES];
	struct job *job;

	(void)argument;
	pthread_mutex_lock(&control.lock);
	while ((job = next_locked()) != NULL) {
		struct spw_control_reply reply = { .data = data };
		struct spw_control_head head;
		int status;

		pthread_mutex_unlock(&control.lock);
		memcpy(&head, job->frame, sizeof(head));
		status = control.serve(head.op, &job->asked, &reply);
		pthread_mutex_lock(&control.lock);
		job->from->running--;
		spw_peer_answer(job->from, job->frame, status, status == 0 ? &reply : NULL);
		free(job);
		wake_mover();
	}
	pthread_mutex_unlock(&control.lock);
	return NULL;
}

/* ---- the thread that moves bytes ---- */

/* Queues a request, answers it from memory, or refuses it. Returns false if the bytes are no
 * request. */
static bool take_locked(struct spw_peer *peer, const uint8_t *frame, size_t length)
{
	struct job *job = malloc(sizeof(*job) + length);
	_Alignas(16) uint8_t data[SPW_CONTROL_DATA_BYTES];
	struct spw_control_reply reply = { .data = data };
	struct spw_control_head head;
	int status = ENOMEM;

	memcpy(&head, frame, sizeof(head));
	if (job != NULL) {
		memcpy(job->frame, frame, length);
		status = spw_control_decode(job->frame, length, &job->asked);
	}
	if (status == 0)
		status = control.tell(head.op, &reply);
	if (status != ENOSYS) {
		spw_peer_answer(peer, frame, status, status == 0 ? &reply : NULL);
		free(job);
		return status != EBADMSG;
	}
	job->from = peer;
	job->next = NULL;
	*control.last = job;
	control.last = &job->next;
	peer->running++;
	pthread_cond_signal(&control.work);
	return true;
}

static void attend_locked(struct spw_peer *peer, bool is_ready)
{
	const uint8_t *frame;
	size_t length;

	if (peer->fd < 0)
		return;
	if (is_ready && spw_peer_reads(peer))
		spw_peer_receive(peer);
	/* Sent answers make room for requests that are here already. */
	spw_peer_send(peer);
	while ((frame = spw_peer_next(peer, &length)) != NULL) {
		if (take_locked(peer, frame, length))
			spw_peer_took(peer, length);
		else
			spw_peer_mute(peer);
	}
	if (spw_clock_ms() >= spw_peer_due_ms(peer))
		spw_peer_drop(peer);
}

static struct spw_peer *free_place_locked(void)
{
	for (unsigned int i = 0; i < PEERS; i++)
		if (control.peers[i].fd < 0 && control.peers[i].running == 0)
			return &control.peers[i];
	return NULL;
}

static void let_in_locked(void)
{
	struct spw_peer *place = free_place_locked();
	int fd = place != NULL ? accept4(control.listener, NULL, NULL, SOCK_CLOEXEC) : -1;

	if (fd >= 0 && spw_peer_is_allowed(fd))
		spw_peer_begin(place, fd);
	else if (fd >= 0)
		close(fd);
	else
		control.refused_ms = spw_clock_ms();
}

/* Returns whether peers are let in. Without a descriptor for the next one, the listener would wake
 * the thread without end. */
static bool lets_in_locked(uint64_t now, uint64_t *until)
{
	if (free_place_locked() == NULL)
		return false;
	if (control.refused_ms == 0 || now - control.refused_ms >= REFUSED_MS)
		return true;
	*until = control.refused_ms + REFUSED_MS;
	return false;
}

/* Fills in what to poll. Returns for how many ms, or -1 for no limit. A peer from which nothing is
 * wanted is left out: when it hangs up, it would wake the thread without end. */
static int prepare_locked(struct pollfd *polled)
{
	uint64_t first = UINT64_MAX, now = spw_clock_ms();

	polled[0] = (struct pollfd){ .fd = control.wake, .events = POLLIN };
	polled[LISTENER] = (struct pollfd){
		.fd = lets_in_locked(now, &first) ? control.listener : -1, .events = POLLIN,
	};
	for (unsigned int i = 0; i < PEERS; i++) {
		const struct spw_peer *peer = &control.peers[i];
		struct pollfd *entry = &polled[FIRST_PEER + i];

		*entry = (struct pollfd){ .fd = -1 };
		if (peer->fd < 0)
			continue;
		if (spw_peer_reads(peer))
			entry->events |= POLLIN;
		if (spw_peer_writes(peer))
			entry->events |= POLLOUT;
		if (entry->events != 0)
			entry->fd = peer->fd;
		if (spw_peer_due_ms(peer) < first)
			first = spw_peer_due_ms(peer);
	}
	if (first == UINT64_MAX)
		return -1;
	return first <= now ? 0 : (int)(first - now);
}

static void *move(void *argument)
{
	struct pollfd polled[FIRST_PEER + PEERS];
	uint64_t wakes;

	(void)argument;
	pthread_mutex_lock(&control.lock);
	while (!control.ending) {
		int wait_ms = prepare_locked(polled);

		pthread_mutex_unlock(&control.lock);
		if (poll(polled, FIRST_PEER + PEERS, wait_ms) < 0)
			for (unsigned int i = 0; i < FIRST_PEER + PEERS; i++)
				polled[i].revents = 0; /* a signal: only check the clock */
		pthread_mutex_lock(&control.lock);
		while (read(control.wake, &wakes, sizeof(wakes)) > 0)
			;
		for (unsigned int i = 0; i < PEERS; i++)
			attend_locked(&control.peers[i], polled[FIRST_PEER + i].revents != 0);
		if (polled[LISTENER].revents != 0)
			let_in_locked();
	}
	pthread_mutex_unlock(&control.lock);
	return NULL;
}

/* ---- begin and end ---- */

/* Makes the socket beside its place and moves it there. So it replaces at once a socket that a
 * killed server left, and a visible socket always has a listener. Returns its descriptor, or
 * -errno. */
static int listen_in(int directory)
{
	const char *made = SPW_CONTROL_NAME ".new";
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int rc = fd < 0 ? -errno : 0;

	if (fd < 0)
		return rc;
	/* The directory's path may be longer than an address can be. */
	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", directory, made);
	(void)unlinkat(directory, made, 0);
	if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
	    fchmodat(directory, made, 0600, 0) != 0 || listen(fd, (int)PEERS) != 0 ||
	    renameat(directory, made, directory, SPW_CONTROL_NAME) != 0) {
		rc = -errno;
		close(fd);
	}
	return rc != 0 ? rc : fd;
}

static void end_threads(unsigned int workers, bool has_mover)
{
	pthread_mutex_lock(&control.lock);
	control.ending = true;
	pthread_cond_broadcast(&control.work);
	pthread_mutex_unlock(&control.lock);
	wake_mover();
	if (has_mover)
		pthread_join(control.mover, NULL);
	while (workers > 0)
		pthread_join(control.workers[--workers], NULL);
}

static int start_threads(void)
{
	unsigned int started = 0;
	int rc = 0;

	control.ending = false;
	control.first = NULL;
	control.last = &control.first;
	for (unsigned int i = 0; i < PEERS; i++)
		control.peers[i].fd = -1;
	while (rc == 0 && started < WORKERS) {
		rc = pthread_create(&control.workers[started], NULL, work, NULL);
		started += rc == 0;
	}
	if (rc == 0)
		rc = pthread_create(&control.mover, NULL, move, NULL);
	if (rc != 0)
		end_threads(started, false);
	return rc;
}

static void close_all(void)
{
	(void)unlinkat(control.directory, SPW_CONTROL_NAME, 0);
	close(control.listener);
	close(control.directory);
	close(control.wake);
}

int spw_control_open(const char *directory, spw_control_serve_fn serve, spw_control_tell_fn tell)
{
	int rc;

	control.directory = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (control.directory < 0)
		return errno;
	control.listener = listen_in(control.directory);
	if (control.listener < 0) {
		close(control.directory);
		return -control.listener;
	}
	control.serve = serve;
	control.tell = tell;
	control.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	rc = control.wake < 0 ? errno : start_threads();
	if (rc != 0)
		close_all();
	control.is_open = rc == 0;
	return rc;
}

void spw_control_close(void)
{
	if (!control.is_open)
		return;
	control.is_open = false;
	end_threads(WORKERS, true);
	while (control.first != NULL) {
		struct job *job = control.first;

		control.first = job->next;
		job->from->running--;
		free(job);
	}
	for (unsigned int i = 0; i < PEERS; i++) {
		if (control.peers[i].fd < 0)
			continue;
		spw_peer_send(&control.peers[i]);
		spw_peer_drop(&control.peers[i]);
	}
	close_all();
}
