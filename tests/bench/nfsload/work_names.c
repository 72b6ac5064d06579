/* Workloads on the names <prefix>0000000, <prefix>0000001 … in one directory. The connections take
 * the names in turn. */
#include <stdio.h>

#include "load.h"

static void number_name(const struct worker *worker, const struct slot *slot, const char *prefix,
                        char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%s%07llu", prefix,
             (unsigned long long)(slot->number * options.connections + worker->client.number));
}

static void begin(struct worker *worker, struct slot *slot, bool cache_reply)
{
    nfs_begin(&worker->client, slot, cache_reply);
    op_putfh(slot, &worker->directory);
}

/* Make an empty file as a client does: OPEN, then CLOSE. */
static void first_create(struct worker *worker, struct slot *slot)
{
    char name[NAME_BYTES];

    number_name(worker, slot, options.prefix, name);
    begin(worker, slot, true);
    op_open(&worker->client, slot, name, SHARE_WRITE, OPEN_GUARDED, false);
    op_plain(slot, OP_GETFH);
    op_access(slot);
    op_getattr(slot);
}

/* Truncate an existing file as a shell's > does: OPEN for writing with size 0, then CLOSE. */
static void first_truncate(struct worker *worker, struct slot *slot)
{
    char name[NAME_BYTES];

    number_name(worker, slot, options.prefix, name);
    begin(worker, slot, true);
    op_open(&worker->client, slot, name, SHARE_WRITE, OPEN_UNCHECKED, true);
    op_plain(slot, OP_GETFH);
}

static bool reply_open(struct worker *worker, struct slot *slot, struct in *reply)
{
    if (slot->step == 1)
        return true;
    take(reply, OP_PUTFH);
    take_open(reply, &slot->stateid);
    take_getfh(reply, &slot->fh);
    nfs_begin(&worker->client, slot, true);
    op_putfh(slot, &slot->fh);
    op_close(slot, &slot->stateid);
    return false;
}

static void first_rename(struct worker *worker, struct slot *slot)
{
    char from[NAME_BYTES], to[NAME_BYTES];

    number_name(worker, slot, options.prefix, from);
    number_name(worker, slot, options.to, to);
    begin(worker, slot, true);
    op_plain(slot, OP_SAVEFH);
    op_rename(slot, from, to);
}

static void first_unlink(struct worker *worker, struct slot *slot)
{
    char name[NAME_BYTES];

    number_name(worker, slot, options.prefix, name);
    begin(worker, slot, true);
    op_remove(slot, name);
}

static void first_lookup(struct worker *worker, struct slot *slot)
{
    char name[NAME_BYTES];

    number_name(worker, slot, options.prefix, name);
    begin(worker, slot, false);
    op_lookup(slot, name);
    op_plain(slot, OP_GETFH);
}

static void first_stat(struct worker *worker, struct slot *slot)
{
    first_lookup(worker, slot);
    op_getattr(slot);
}

static bool reply_done(struct worker *worker, struct slot *slot, struct in *reply)
{
    (void)worker, (void)slot, (void)reply;
    return true;
}

static void run(struct worker *worker, void (*first)(struct worker *, struct slot *),
                bool (*reply)(struct worker *, struct slot *, struct in *))
{
    const struct unit unit = {first, reply, 0};

    worker->next = 0;
    worker->units = share_of(worker, options.count);
    pipeline(worker, &unit);
}

static void create_run(struct worker *worker)
{
    run(worker, first_create, reply_open);
}

static void truncate_run(struct worker *worker)
{
    run(worker, first_truncate, reply_open);
}

static void rename_run(struct worker *worker)
{
    run(worker, first_rename, reply_done);
}

static void unlink_run(struct worker *worker)
{
    run(worker, first_unlink, reply_done);
}

static void lookup_run(struct worker *worker)
{
    run(worker, first_lookup, reply_done);
}

static void stat_run(struct worker *worker)
{
    run(worker, first_stat, reply_done);
}

static void count_entry(const char *name, size_t length, const struct attributes *attributes,
                        void *context)
{
    (void)name, (void)length, (void)attributes;
    ++*(uint64_t *)context;
}

/* List the directory. Operations count entries; latencies are those of pages. */
static void list_run(struct worker *worker)
{
    struct client *client = &worker->client;
    uint64_t cookie = 0, verifier = 0, found = 0;
    bool last = false;

    while (!last) {
        uint64_t started = now_ns();
        struct in reply;

        begin(worker, client->slot, false);
        op_readdir(client->slot, cookie, verifier, options.size_bytes);
        require(nfs_call(client, &reply), "READDIR", options.directory);
        take(&reply, OP_PUTFH);
        last = take_readdir(&reply, &cookie, &verifier, count_entry, &found);
        stats_done(&client->stats, 0, now_ns() - started);
    }
    client->stats.ops = found;
    if (options.count && found != options.count)
        stats_error(&client->stats, "%llu entries listed, not %llu", (unsigned long long)found,
                    (unsigned long long)options.count);
}

const struct workload name_workloads[] = {
    {"create", 0, false, NULL, create_run, NULL},
    {"truncate", 0, false, NULL, truncate_run, NULL},
    {"rename", 0, false, NULL, rename_run, NULL},
    {"unlink", 0, false, NULL, unlink_run, NULL},
    {"lookup", 0, false, NULL, lookup_run, NULL},
    {"stat", 0, false, NULL, stat_run, NULL},
    {"list", 128u << 10, true, NULL, list_run, NULL},
    {0},
};
