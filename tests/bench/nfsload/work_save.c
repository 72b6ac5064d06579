/* Saves a checkpoint: each connection is a rank. It writes, syncs and renames <prefix><n>.tmp. */
#include <stdio.h>

#include "load.h"

static void save_run(struct worker *worker)
{
    struct client *client = &worker->client;
    char temporary[NAME_BYTES], final[NAME_BYTES];

    snprintf(final, sizeof final, "%s%u", options.prefix, client->number);
    snprintf(temporary, sizeof temporary, "%.200s.tmp", final);
    require(call_open(client, &worker->directory, temporary, SHARE_WRITE, OPEN_UNCHECKED, true,
                      &worker->file, &worker->stateid),
            "OPEN", temporary);
    write_file(worker);
    commit_file(worker);
    require(call_close(client, &worker->file, &worker->stateid), "CLOSE", temporary);
    require(call_rename(client, &worker->directory, temporary, final), "RENAME", temporary);
}

const struct workload save_workloads[] = {
    {"save", MIB, true, NULL, save_run, NULL},
    {0},
};
