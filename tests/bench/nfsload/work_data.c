/* Workloads on bytes: each connection has a file of its own, named by its number. */
#include <stdio.h>

#include "load.h"

void block_fill(uint8_t *block, size_t length)
{
    uint64_t state = 0x9e3779b97f4a7c15ull;

    for (size_t at = 0; at + 8 <= length; at += 8) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        memcpy(block + at, &state, 8);
    }
}

bool block_is(const uint8_t *found, const uint8_t *block, size_t length, const struct stamp *stamp)
{
    return !memcmp(found, stamp, sizeof *stamp) &&
           !memcmp(found + sizeof *stamp, block + sizeof *stamp, length - sizeof *stamp);
}

void block_stamp(uint8_t *block, uint64_t number, uint64_t offset, size_t length)
{
    for (size_t at = 0; at < length; at += sizeof(struct stamp))
        memcpy(block + at, &(struct stamp){number, offset + at}, sizeof(struct stamp));
}

void note_write(struct worker *worker, uint64_t verifier)
{
    if (worker->verifier_known && worker->verifier != verifier)
        stats_error(&worker->client.stats, "the write verifier changed");
    worker->verifier = worker->client.stats.write_verifier = verifier;
    worker->verifier_known = true;
}

void commit_file(struct worker *worker)
{
    uint64_t verifier = 0;

    require(call_commit(&worker->client, &worker->file, &verifier), "COMMIT", "");
    note_write(worker, verifier);
    worker->verifier_known = false;
}

static void file_name(const struct worker *worker, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%s%u", options.prefix, worker->client.number);
}

static void open_file(struct worker *worker, enum share share, enum open_how how)
{
    char name[NAME_BYTES];

    file_name(worker, name);
    require(call_open(&worker->client, &worker->directory, name, share, how, false, &worker->file,
                      &worker->stateid),
            "OPEN", name);
    worker->next = 0;
    worker->verifier_known = false;
}

static void close_file(struct worker *worker)
{
    require(call_close(&worker->client, &worker->file, &worker->stateid), "CLOSE", "");
}

static void remove_file(struct worker *worker)
{
    char name[NAME_BYTES];
    uint32_t status;

    file_name(worker, name);
    status = call_remove(&worker->client, &worker->directory, name);
    if (status != NFS4ERR_NOENT)
        require(status, "REMOVE", name);
}

static void put_write(struct worker *worker, struct slot *slot, uint64_t offset,
                      enum stable stable)
{
    const struct stamp stamp = {worker->client.number, offset};

    nfs_begin(&worker->client, slot, false);
    op_putfh(slot, &worker->file);
    op_write(slot, &worker->stateid, offset, &stamp, worker->block, options.size_bytes, stable);
    op_getattr(slot);
}

static void first_write(struct worker *worker, struct slot *slot)
{
    put_write(worker, slot, slot->number * options.size_bytes, options.stable);
}

static bool reply_write(struct worker *worker, struct slot *slot, struct in *reply)
{
    struct attributes attributes;
    uint64_t verifier;

    (void)slot;
    take(reply, OP_PUTFH);
    if (take_write(reply, &verifier) != options.size_bytes)
        stats_error(&worker->client.stats, "a short WRITE");
    take_getattr(reply, &attributes);
    note_write(worker, verifier);
    return true;
}

void write_file(struct worker *worker)
{
    const struct unit unit = {first_write, reply_write, options.size_bytes};

    worker->next = 0;
    worker->units = options.file_bytes / options.size_bytes;
    pipeline(worker, &unit);
}

static void write_run(struct worker *worker)
{
    open_file(worker, SHARE_WRITE, OPEN_UNCHECKED);
    write_file(worker);
    commit_file(worker);
    close_file(worker);
}

/* The reply to a log record. With --commit, a COMMIT follows each WRITE. */
static bool reply_append(struct worker *worker, struct slot *slot, struct in *reply)
{
    if (slot->step == 1) {
        take(reply, OP_PUTFH);
        note_write(worker, take_commit(reply));
        return true;
    }
    reply_write(worker, slot, reply);
    if (!options.commit)
        return true;
    nfs_begin(&worker->client, slot, false);
    op_putfh(slot, &worker->file);
    op_commit(slot);
    return false;
}

static void append_open(struct worker *worker)
{
    remove_file(worker);
    open_file(worker, SHARE_WRITE, OPEN_UNCHECKED);
    if (!options.commit)
        options.stable = FILE_SYNC;
    worker->units = share_of(worker, options.count);
}

static void append_run(struct worker *worker)
{
    const struct unit unit = {first_write, reply_append, options.size_bytes};

    pipeline(worker, &unit);
}

static uint64_t random_offset(struct worker *worker)
{
    return next_random(worker) % (options.file_bytes / options.size_bytes) * options.size_bytes;
}

static void first_random_write(struct worker *worker, struct slot *slot)
{
    put_write(worker, slot, random_offset(worker), options.stable);
}

static void random_open(struct worker *worker)
{
    open_file(worker, SHARE_BOTH, OPEN_EXISTING);
    worker->units = share_of(worker, options.count);
}

static void randwrite_run(struct worker *worker)
{
    const struct unit unit = {first_random_write, reply_write, options.size_bytes};

    pipeline(worker, &unit);
    commit_file(worker);
}

static void put_read(struct worker *worker, struct slot *slot, uint64_t offset)
{
    slot->number = offset;
    nfs_begin(&worker->client, slot, false);
    op_putfh(slot, &worker->file);
    op_read(slot, &worker->stateid, offset, options.size_bytes);
}

static void first_read(struct worker *worker, struct slot *slot)
{
    put_read(worker, slot, slot->number * options.size_bytes);
}

static void first_random_read(struct worker *worker, struct slot *slot)
{
    put_read(worker, slot, random_offset(worker));
}

static bool reply_read(struct worker *worker, struct slot *slot, struct in *reply)
{
    const struct stamp stamp = {worker->client.number, slot->number};
    size_t length;
    bool eof;
    const uint8_t *bytes;

    take(reply, OP_PUTFH);
    bytes = take_read(reply, &length, &eof);
    if (length != options.size_bytes)
        stats_error(&worker->client.stats, "a short READ: %zu bytes", length);
    else if (options.verify && !block_is(bytes, worker->block, length, &stamp))
        stats_error(&worker->client.stats, "wrong content at %llu",
                    (unsigned long long)slot->number);
    return true;
}

static void read_open(struct worker *worker)
{
    open_file(worker, SHARE_READ, OPEN_EXISTING);
    worker->units = options.file_bytes / options.size_bytes;
}

static void read_run(struct worker *worker)
{
    const struct unit unit = {first_read, reply_read, options.size_bytes};

    pipeline(worker, &unit);
}

static void randread_run(struct worker *worker)
{
    const struct unit unit = {first_random_read, reply_read, options.size_bytes};

    pipeline(worker, &unit);
}

const struct workload data_workloads[] = {
    {"write", MIB, true, remove_file, write_run, NULL},
    {"read", MIB, true, read_open, read_run, close_file},
    {"randwrite", 4096, false, random_open, randwrite_run, close_file},
    {"randread", 4096, false, random_open, randread_run, close_file},
    {"clear", 0, true, NULL, remove_file, NULL},
    {"append", 65536, false, append_open, append_run, close_file},
    {0},
};
