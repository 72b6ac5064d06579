/* Fills a disk: the first connection saves checkpoints, the others read saved ones at random and
 * verify each byte. The content of a file follows from --seed and its name, so no log is needed. */
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "load.h"

#define SHARDS 4u
#define UNIT_BYTES sizeof(struct stamp)
#define RETURN_PAUSE_US 20000
#define IDLE_PAUSE_US 100000

/* A range of a shard. */
struct part {
    unsigned step, shard;
    uint64_t begin, end;
    char directory[NAME_BYTES / 2], name[NAME_BYTES / 2];
};

static atomic_uint saved; /* number of checkpoints whose rename is done: step_0, step_1 … */
static atomic_bool ended; /* the last one is saved */

static uint64_t number_of(unsigned step, unsigned shard)
{
    return options.seed << 32 | (step * SHARDS + shard + 1);
}

/* Return how much of a range the next request is about. */
static uint32_t piece(uint64_t offset, uint64_t end)
{
    return end - offset < options.size_bytes ? (uint32_t)(end - offset) : options.size_bytes;
}

/* False: the connection or the lease is lost, and the call must be made again. Any other error ends
 * the program: neither a save nor a read of what was saved may fail. */
static bool done(struct worker *worker, uint32_t status, const char *what, const char *name)
{
    if (nfs_is_lost_lease(status))
        worker->client.stats.lost_leases++;
    else if (status != NFS_LOST)
        require(status, what, name);
    return status == NFS4_OK;
}

static void come_back(struct worker *worker)
{
    while (!client_reconnect(&worker->client))
        usleep(RETURN_PAUSE_US);
}

/* Write a piece of worker->file. False: its answer is lost, or WRITEs before it may be lost. */
static bool written(struct worker *worker, const char *name, uint64_t number, uint64_t offset,
                    uint32_t length)
{
    struct client *client = &worker->client;
    const struct stamp stamp = {number, offset};
    uint64_t started = now_ns(), verifier;
    struct in reply;

    block_stamp(worker->block, number, offset, length);
    nfs_begin(client, client->slot, false);
    op_putfh(client->slot, &worker->file);
    op_write(client->slot, &worker->stateid, offset, &stamp, worker->block, length, UNSTABLE);
    if (!done(worker, nfs_call(client, &reply), "WRITE", name))
        return false;
    take(&reply, OP_PUTFH);
    if (take_write(&reply, &verifier) != length)
        die("WRITE %s: it was short", name);
    if (now_ns() - started > client->stats.longest_write_ns)
        client->stats.longest_write_ns = now_ns() - started;
    if (offset == 0)
        worker->verifier = verifier;
    return worker->verifier == verifier;
}

/* Write and sync a shard. What an earlier attempt left of it is written over, not truncated, as a
 * client does that sends its WRITEs again. */
static bool shard_saved(struct worker *worker, const struct fh *directory, unsigned step,
                        unsigned shard)
{
    struct client *client = &worker->client;
    uint64_t number = number_of(step, shard), verifier;
    char name[NAME_BYTES];

    snprintf(name, sizeof name, "rank_%u.pt", shard);
    if (!done(worker,
              call_open(client, directory, name, SHARE_WRITE, OPEN_UNCHECKED, false,
                        &worker->file, &worker->stateid),
              "OPEN", name))
        return false;
    for (uint64_t at = 0; at < options.file_bytes; at += options.size_bytes)
        if (!written(worker, name, number, at, piece(at, options.file_bytes)))
            return false;
    return done(worker, call_commit(client, &worker->file, &verifier), "COMMIT", name) &&
           verifier == worker->verifier &&
           done(worker, call_close(client, &worker->file, &worker->stateid), "CLOSE", name);
}

/* Save what is missing of a checkpoint; *shards of its files are there. False: call this again. */
static bool step_saved(struct worker *worker, unsigned step, unsigned *shards)
{
    struct client *client = &worker->client;
    char final[NAME_BYTES], temporary[NAME_BYTES];
    struct attributes attributes;
    struct fh directory;
    uint32_t status;

    snprintf(final, sizeof final, "step_%u", step);
    snprintf(temporary, sizeof temporary, "tmp-step_%u", step);
    status = call_lookup(client, &worker->directory, final, &directory, &attributes);
    if (status != NFS4ERR_NOENT)
        return done(worker, status, "LOOKUP", final); /* a rename whose answer was lost is done */
    status = call_mkdir(client, &worker->directory, temporary);
    if (status != NFS4ERR_EXIST && !done(worker, status, "CREATE", temporary))
        return false;
    status = call_lookup(client, &worker->directory, temporary, &directory, &attributes);
    if (!done(worker, status, "LOOKUP", temporary))
        return false;
    for (; *shards < SHARDS; ++*shards)
        if (!shard_saved(worker, &directory, step, *shards))
            return false;
    status = call_rename(client, &worker->directory, temporary, final);
    return done(worker, status, "RENAME", temporary);
}

static void save_all(struct worker *worker)
{
    for (unsigned step = 0; !options.count || step < options.count; step++) {
        unsigned shards = 0;

        if (now_ns() >= worker->deadline_ns)
            break;
        while (!step_saved(worker, step, &shards))
            come_back(worker);
        saved = step + 1;
        usleep((useconds_t)(options.pause_seconds * 1e6));
    }
    ended = true;
}

static uint64_t draw(struct worker *worker, uint64_t below)
{
    return (next_random(worker) >> 20) % below;
}

/* Choose a saved file, and in half of the cases a range of it. */
static struct part any_part(struct worker *worker)
{
    uint64_t units = options.file_bytes / UNIT_BYTES, first;
    struct part part = {.end = options.file_bytes};

    part.step = (unsigned)draw(worker, saved);
    part.shard = (unsigned)draw(worker, SHARDS);
    snprintf(part.directory, sizeof part.directory, "step_%u", part.step);
    snprintf(part.name, sizeof part.name, "rank_%u.pt", part.shard);
    if (draw(worker, 2)) {
        first = draw(worker, units);
        part.begin = first * UNIT_BYTES;
        part.end = (first + 1 + draw(worker, units - first)) * UNIT_BYTES;
    }
    return part;
}

/* Read a piece of worker->file and verify it. *length: how much to ask for, then how much came. */
static bool verified(struct worker *worker, const struct part *part, uint64_t offset,
                     uint32_t *length)
{
    struct client *client = &worker->client;
    const uint8_t *bytes;
    struct in reply;
    size_t found;
    bool eof;

    nfs_begin(client, client->slot, false);
    op_putfh(client->slot, &worker->file);
    op_read(client->slot, &worker->stateid, offset, *length);
    if (!done(worker, nfs_call(client, &reply), "READ", part->directory))
        return false;
    take(&reply, OP_PUTFH);
    bytes = take_read(&reply, &found, &eof);
    if (!found || found > *length || eof != (offset + found == options.file_bytes)) {
        stats_error(&client->stats, "%s/%s: %zu bytes at %llu, %s", part->directory, part->name,
                    found, (unsigned long long)offset,
                    eof ? "where it ends" : "where it does not end");
        return true;
    }
    block_stamp(worker->block, number_of(part->step, part->shard), offset, *length);
    if (memcmp(bytes, worker->block, found))
        stats_error(&client->stats, "%s/%s: wrong bytes at %llu or behind it", part->directory,
                    part->name, (unsigned long long)offset);
    *length = (uint32_t)found;
    return true;
}

static bool part_read(struct worker *worker, const struct part *part)
{
    struct client *client = &worker->client;
    struct attributes attributes;
    uint32_t length;
    struct fh fh;

    if (!done(worker, call_lookup(client, &worker->directory, part->directory, &fh, &attributes),
              "LOOKUP", part->directory) ||
        !done(worker,
              call_open(client, &fh, part->name, SHARE_READ, OPEN_EXISTING, false, &worker->file,
                        &worker->stateid),
              "OPEN", part->directory))
        return false;
    for (uint64_t at = part->begin; at < part->end; at += length) {
        length = piece(at, part->end);
        if (!verified(worker, part, at, &length))
            return false;
    }
    return done(worker, call_close(client, &worker->file, &worker->stateid), "CLOSE",
                part->directory);
}

/* The time of a read has the restarts of the server in it: an application waits for them, too. */
static void read_some(struct worker *worker)
{
    while (!ended) {
        uint64_t started = now_ns();
        struct part part;

        if (!saved) {
            usleep(IDLE_PAUSE_US);
            continue;
        }
        part = any_part(worker);
        while (!part_read(worker, &part))
            come_back(worker);
        stats_done(&worker->client.stats, part.end - part.begin, now_ns() - started);
    }
}

static void refill_open(struct worker *worker)
{
    if (options.connections < 2 || options.file_bytes % UNIT_BYTES ||
        options.size_bytes % UNIT_BYTES)
        die("refill needs two --connections, and multiples of %zu as --file and --size",
            UNIT_BYTES);
    seed_random(worker);
    worker->client.rpc.survives = true;
}

static void refill_run(struct worker *worker)
{
    if (worker->client.number == 0)
        save_all(worker);
    else
        read_some(worker);
}

const struct workload refill_workloads[] = {
    {"refill", MIB, false, refill_open, refill_run, NULL},
    {0},
};
