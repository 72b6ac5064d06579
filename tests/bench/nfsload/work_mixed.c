/* A random mix of all work. Each connection has files of its own and remembers their content. */
#include <stdio.h>

#include "load.h"

#define FILES 24u
#define BLOCKS 32u

struct mixed_file {
    bool exists;
    unsigned blocks;
    uint64_t content[BLOCKS]; /* the number in the block's stamp */
};

struct mixed {
    struct worker *worker;
    struct client *client;
    struct mixed_file files[FILES];
    uint64_t contents; /* the last number used in a stamp */
    unsigned number;   /* of the current file */
    char name[NAME_BYTES];
};

/* Return whether the status is the expected one. Otherwise count an error, and after a lost lease
 * connect again. */
static bool good(struct mixed *mixed, uint32_t status, uint32_t expected, const char *what)
{
    if (status == expected)
        return true;
    stats_error(&mixed->client->stats, "%s %s of client %u: NFS4ERR %u", what, mixed->name,
                mixed->client->number, status);
    if (nfs_is_lost_lease(status)) {
        mixed->client->stats.lost_leases++;
        client_reconnect(mixed->client);
    }
    return false;
}

static bool opened(struct mixed *mixed, const char *name, enum share share, enum open_how how,
                   bool truncate)
{
    struct worker *worker = mixed->worker;

    worker->verifier_known = false;
    return good(mixed,
                call_open(mixed->client, &worker->directory, name, share, how, truncate,
                          &worker->file, &worker->stateid),
                NFS4_OK, "OPEN");
}

static bool closed(struct mixed *mixed)
{
    struct worker *worker = mixed->worker;

    return good(mixed, call_close(mixed->client, &worker->file, &worker->stateid), NFS4_OK,
                "CLOSE");
}

static bool committed(struct mixed *mixed)
{
    uint64_t verifier = 0;

    if (!good(mixed, call_commit(mixed->client, &mixed->worker->file, &verifier), NFS4_OK,
              "COMMIT"))
        return false;
    note_write(mixed->worker, verifier);
    return true;
}

static struct stamp stamp_of(const struct mixed *mixed, unsigned block)
{
    const struct mixed_file *file = &mixed->files[mixed->number];

    return (struct stamp){(uint64_t)mixed->client->number << 40 | file->content[block],
                          (uint64_t)block * options.size_bytes};
}

/* WRITE a block of the open file with new content, and check the file's size afterwards. */
static bool written(struct mixed *mixed, unsigned block, enum stable stable)
{
    struct mixed_file *file = &mixed->files[mixed->number];
    struct worker *worker = mixed->worker;
    struct slot *slot = mixed->client->slot;
    struct attributes attributes;
    struct stamp stamp;
    struct in reply;
    uint64_t verifier;

    file->content[block] = ++mixed->contents;
    if (block >= file->blocks)
        file->blocks = block + 1;
    stamp = stamp_of(mixed, block);
    nfs_begin(mixed->client, slot, false);
    op_putfh(slot, &worker->file);
    op_write(slot, &worker->stateid, stamp.offset, &stamp, worker->block, options.size_bytes,
             stable);
    op_getattr(slot);
    if (!good(mixed, nfs_call(mixed->client, &reply), NFS4_OK, "WRITE"))
        return false;
    take(&reply, OP_PUTFH);
    if (take_write(&reply, &verifier) != options.size_bytes)
        stats_error(&mixed->client->stats, "a short WRITE");
    note_write(worker, verifier);
    take_getattr(&reply, &attributes);
    if (attributes.size_bytes != (uint64_t)file->blocks * options.size_bytes)
        stats_error(&mixed->client->stats, "%s has %llu bytes after a WRITE, not %u blocks",
                    mixed->name, (unsigned long long)attributes.size_bytes, file->blocks);
    mixed->client->stats.bytes += options.size_bytes;
    return true;
}

static bool save(struct mixed *mixed)
{
    struct mixed_file *file = &mixed->files[mixed->number];
    unsigned blocks = (unsigned)(next_random(mixed->worker) % BLOCKS) + 1;
    char temporary[NAME_BYTES];

    snprintf(temporary, sizeof temporary, "%.200s.tmp", mixed->name);
    file->blocks = 0;
    if (!opened(mixed, temporary, SHARE_WRITE, OPEN_UNCHECKED, true))
        return false;
    for (unsigned block = 0; block < blocks; block++)
        if (!written(mixed, block, UNSTABLE))
            return false;
    if (!committed(mixed) || !closed(mixed) ||
        !good(mixed,
              call_rename(mixed->client, &mixed->worker->directory, temporary, mixed->name),
              NFS4_OK, "RENAME"))
        return false;
    file->exists = true;
    return true;
}

static bool create(struct mixed *mixed)
{
    if (!opened(mixed, mixed->name, SHARE_WRITE, OPEN_GUARDED, false) || !closed(mixed))
        return false;
    mixed->files[mixed->number].exists = true;
    mixed->files[mixed->number].blocks = 0;
    return true;
}

static bool append(struct mixed *mixed)
{
    struct mixed_file *file = &mixed->files[mixed->number];

    return file->blocks == BLOCKS ||
           (opened(mixed, mixed->name, SHARE_WRITE, OPEN_EXISTING, false) &&
            written(mixed, file->blocks, FILE_SYNC) && closed(mixed));
}

static bool overwrite(struct mixed *mixed)
{
    struct mixed_file *file = &mixed->files[mixed->number];

    return !file->blocks ||
           (opened(mixed, mixed->name, SHARE_BOTH, OPEN_EXISTING, false) &&
            written(mixed, (unsigned)(next_random(mixed->worker) % file->blocks), UNSTABLE) &&
            committed(mixed) && closed(mixed));
}

static bool read_block(struct mixed *mixed, unsigned block)
{
    struct worker *worker = mixed->worker;
    struct slot *slot = mixed->client->slot;
    const struct stamp stamp = stamp_of(mixed, block);
    const uint8_t *bytes;
    struct in reply;
    size_t length;
    bool eof;

    nfs_begin(mixed->client, slot, false);
    op_putfh(slot, &worker->file);
    op_read(slot, &worker->stateid, stamp.offset, options.size_bytes);
    if (!good(mixed, nfs_call(mixed->client, &reply), NFS4_OK, "READ"))
        return false;
    take(&reply, OP_PUTFH);
    bytes = take_read(&reply, &length, &eof);
    if (length != options.size_bytes || !block_is(bytes, worker->block, length, &stamp))
        stats_error(&mixed->client->stats, "%s of client %u: wrong content in block %u",
                    mixed->name, mixed->client->number, block);
    mixed->client->stats.bytes += length;
    return true;
}

static bool read_back(struct mixed *mixed)
{
    struct mixed_file *file = &mixed->files[mixed->number];

    if (!opened(mixed, mixed->name, SHARE_READ, OPEN_EXISTING, false))
        return false;
    for (unsigned block = 0; block < file->blocks; block++)
        if (!read_block(mixed, block))
            return false;
    return closed(mixed);
}

static bool stat_name(struct mixed *mixed)
{
    struct mixed_file *file = &mixed->files[mixed->number];
    struct attributes attributes;
    struct fh fh;
    uint32_t status =
        call_lookup(mixed->client, &mixed->worker->directory, mixed->name, &fh, &attributes);

    if (!good(mixed, status, file->exists ? NFS4_OK : NFS4ERR_NOENT, "LOOKUP"))
        return false;
    if (file->exists && attributes.size_bytes != (uint64_t)file->blocks * options.size_bytes)
        stats_error(&mixed->client->stats, "%s has %llu bytes, not %u blocks", mixed->name,
                    (unsigned long long)attributes.size_bytes, file->blocks);
    return true;
}

static bool unlink_name(struct mixed *mixed)
{
    mixed->files[mixed->number].exists = false;
    return good(mixed, call_remove(mixed->client, &mixed->worker->directory, mixed->name), NFS4_OK,
                "REMOVE");
}

static void tick_entry(const char *name, size_t length, const struct attributes *attributes,
                       void *context)
{
    struct mixed *mixed = context;
    char copy[NAME_BYTES] = "";
    unsigned number;

    (void)attributes;
    memcpy(copy, name, length < sizeof copy ? length : 0);
    if (sscanf(copy, "m%u", &number) != 1 || number >= FILES || !mixed->files[number].exists)
        stats_error(&mixed->client->stats, "%s is listed and should not be there", copy);
    else
        mixed->number |= 1u << number;
}

static bool list(struct mixed *mixed)
{
    struct slot *slot = mixed->client->slot;
    uint64_t cookie = 0, verifier = 0;
    unsigned expected = 0;
    bool last = false;

    mixed->number = 0;
    while (!last) {
        struct in reply;

        nfs_begin(mixed->client, slot, false);
        op_putfh(slot, &mixed->worker->directory);
        op_readdir(slot, cookie, verifier, 4096);
        if (!good(mixed, nfs_call(mixed->client, &reply), NFS4_OK, "READDIR"))
            return false;
        take(&reply, OP_PUTFH);
        last = take_readdir(&reply, &cookie, &verifier, tick_entry, mixed);
    }
    for (unsigned number = 0; number < FILES; number++)
        expected |= (unsigned)mixed->files[number].exists << number;
    if (mixed->number != expected)
        stats_error(&mixed->client->stats, "client %u: names %x listed, not %x",
                    mixed->client->number, mixed->number, expected);
    return true;
}

/* Remove the file after a failure, because its content is then unknown. */
static void forget(struct mixed *mixed)
{
    char temporary[NAME_BYTES];

    snprintf(temporary, sizeof temporary, "%.200s.tmp", mixed->name);
    call_remove(mixed->client, &mixed->worker->directory, temporary);
    call_remove(mixed->client, &mixed->worker->directory, mixed->name);
    sscanf(mixed->name, "m%u", &mixed->number);
    mixed->files[mixed->number] = (struct mixed_file){0};
}

static bool (*choose(struct mixed *mixed))(struct mixed *)
{
    unsigned chance = (unsigned)(next_random(mixed->worker) >> 20) % 100;

    if (chance < 5)
        return list;
    if (chance < 20)
        return stat_name;
    if (!mixed->files[mixed->number].exists)
        return chance < 35 ? create : save;
    return chance < 35   ? append
           : chance < 50 ? overwrite
           : chance < 75 ? read_back
           : chance < 90 ? save
                         : unlink_name;
}

static void mixed_open(struct worker *worker)
{
    char name[NAME_BYTES];
    struct attributes attributes;
    struct fh directory;

    snprintf(name, sizeof name, "%s%u", options.prefix, worker->client.number);
    require(call_mkdir(&worker->client, &worker->directory, name), "CREATE", name);
    require(call_lookup(&worker->client, &worker->directory, name, &directory, &attributes),
            "LOOKUP", name);
    worker->directory = directory;
}

static void mixed_run(struct worker *worker)
{
    struct mixed mixed = {.worker = worker, .client = &worker->client};
    uint64_t units = share_of(worker, options.count);

    for (uint64_t unit = 0; unit < units && now_ns() < worker->deadline_ns; unit++) {
        uint64_t started = now_ns();

        mixed.number = (unsigned)(next_random(worker) >> 20) % FILES;
        snprintf(mixed.name, sizeof mixed.name, "m%u", mixed.number);
        if (choose(&mixed)(&mixed))
            stats_done(&worker->client.stats, 0, now_ns() - started);
        else
            forget(&mixed);
    }
}

const struct workload mixed_workloads[] = {
    {"mixed", 32768, false, mixed_open, mixed_run, NULL},
    {0},
};
