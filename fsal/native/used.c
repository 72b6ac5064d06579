/* Counts of threads and descriptors.
 *
 * ntirpc keeps its count of threads to itself, so each thread is counted when ntirpc has it named,
 * and when it ends.
 */
#include "statistics.h"

#include <dirent.h>
#include <pthread.h>
#include <rpc/rpc.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/resource.h>

static atomic_uint threads;
static pthread_key_t end;
static void (*name_thread)(const char *);

static void has_ended(void *value)
{
	(void)value;
	atomic_fetch_sub(&threads, 1);
}

/* ntirpc has each thread of its pool, and no other, named when it begins. */
static void begins(const char *name)
{
	if (pthread_setspecific(end, &threads) == 0)
		atomic_fetch_add(&threads, 1);
	name_thread(name);
}

void spw_used_start(void)
{
	tirpc_pkg_params params;

	if (!tirpc_control(TIRPC_GET_PARAMETERS, &params) || params.thread_name_ == NULL ||
	    pthread_key_create(&end, has_ended) != 0)
		return;
	name_thread = params.thread_name_;
	params.thread_name_ = begins;
	(void)tirpc_control(TIRPC_PUT_PARAMETERS, &params);
}

static uint32_t count_descriptors(void)
{
	const struct dirent *entry;
	DIR *dir = opendir("/proc/self/fd");
	uint32_t found = 0;

	if (dir == NULL)
		return 0;
	while ((entry = readdir(dir)) != NULL)
		found += entry->d_name[0] != '.';
	closedir(dir);
	return found > 0 ? found - 1 : 0; /* without that of the directory */
}

void spw_used(struct spw_used *used)
{
	struct rlimit limit;

	used->threads = atomic_load(&threads);
	used->descriptors = count_descriptors();
	used->descriptors_most = getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}
