/* Makes changes of all kinds and logs each answer before the next request; tests/torture reads the
 * log. */
#include <signal.h>
#include <stdio.h>

#include "torture.h"

static volatile sig_atomic_t stopping;

static unsigned draw(struct torture *torture, unsigned below)
{
    return (unsigned)(next_random(torture->worker) >> 20) % below;
}

/* Begin a request that changes one place, or two. */
static struct slot *begin_change(struct torture *torture, unsigned places, struct place first,
                                 struct place second)
{
    torture->doubts = places;
    torture->doubt[0] = first;
    torture->doubt[1] = second;
    nfs_begin(torture->client, torture->client->slot, true);
    op_putfh(torture->client->slot, parent_of(torture, first));
    return torture->client->slot;
}

static struct slot *begin_on_file(struct torture *torture, char path[NAME_BYTES])
{
    struct slot *slot = torture->client->slot;

    path_of(torture, torture->file, path);
    nfs_begin(torture->client, slot, false);
    op_putfh(slot, &torture->worker->file);
    return slot;
}

static bool done(struct torture *torture)
{
    note(torture, "ok");
    return true;
}

/* Ask for the size of the open file. This is no part of OPEN: if a GETATTR there were answered
 * NFS4ERR_DELAY, the repeated compound would create the file a second time. */
static bool measured(struct torture *torture)
{
    char path[NAME_BYTES];
    struct slot *slot = begin_on_file(torture, path);
    struct attributes attributes;

    op_getattr(slot);
    if (!ask(torture, "stat %s", path))
        return false;
    take(&torture->reply, OP_PUTFH);
    take_getattr(&torture->reply, &attributes);
    torture->size_bytes = attributes.size_bytes;
    note(torture, "ok %llu", (unsigned long long)attributes.size_bytes);
    return true;
}

static bool opened(struct torture *torture, struct place place, enum share share,
                   enum open_how how)
{
    static const char *const verbs[] = {"open", "replace", "create"};
    struct slot *slot = begin_change(torture, how != OPEN_EXISTING, place, place);
    char path[NAME_BYTES], name[NAME_BYTES];

    path_of(torture, place, path);
    leaf_of(torture, place, name);
    torture->file = place;
    op_open(torture->client, slot, name, share, how, how == OPEN_UNCHECKED);
    op_plain(slot, OP_GETFH);
    if (!ask(torture, "%s %s", verbs[how], path))
        return false;
    take(&torture->reply, OP_PUTFH);
    take_open(&torture->reply, &torture->worker->stateid);
    take_getfh(&torture->reply, &torture->worker->file);
    torture->directories[place.directory].file[place.name] = true;
    torture->doubts = 0;
    return done(torture) && (how != OPEN_EXISTING || measured(torture));
}

static bool closed(struct torture *torture)
{
    char path[NAME_BYTES];
    struct slot *slot = begin_on_file(torture, path);

    op_close(slot, &torture->worker->stateid);
    return ask(torture, "close %s", path) && done(torture);
}

static bool written(struct torture *torture, uint64_t offset, uint32_t length, enum stable stable)
{
    struct worker *worker = torture->worker;
    uint64_t number = (uint64_t)torture->client->number << 40 | (torture->steps + 1), verifier;
    char path[NAME_BYTES];
    struct slot *slot = begin_on_file(torture, path);
    const struct stamp stamp = {number, offset};
    uint32_t count;

    block_stamp(worker->block, number, offset, length);
    op_write(slot, &worker->stateid, offset, &stamp, worker->block, length, stable);
    if (!ask(torture, "write %s %llu %u %llu %s", path, (unsigned long long)offset, length,
             (unsigned long long)number, stable == UNSTABLE ? "unstable" : "stable"))
        return false;
    take(&torture->reply, OP_PUTFH);
    count = take_write(&torture->reply, &verifier);
    note(torture, "ok %u %016llx", count, (unsigned long long)verifier);
    return true;
}

static bool committed(struct torture *torture)
{
    char path[NAME_BYTES];
    struct slot *slot = begin_on_file(torture, path);

    op_commit(slot);
    if (!ask(torture, "commit %s", path))
        return false;
    take(&torture->reply, OP_PUTFH);
    note(torture, "ok %016llx", (unsigned long long)take_commit(&torture->reply));
    return true;
}

static bool renamed(struct torture *torture, struct place from, struct place to)
{
    struct slot *slot = begin_change(torture, 2, from, to);
    char old[NAME_BYTES], new[NAME_BYTES], old_name[NAME_BYTES], new_name[NAME_BYTES];

    path_of(torture, from, old);
    path_of(torture, to, new);
    leaf_of(torture, from, old_name);
    leaf_of(torture, to, new_name);
    op_plain(slot, OP_SAVEFH);
    op_putfh(slot, parent_of(torture, to));
    op_rename(slot, old_name, new_name);
    if (!ask(torture, "rename %s %s", old, new))
        return false;
    torture->doubts = 0;
    if (from.name == NAMES) {
        torture->directories[to.directory] = torture->directories[from.directory];
        torture->directories[from.directory] = (struct directory){0};
    } else {
        torture->directories[from.directory].file[from.name] = false;
        torture->directories[to.directory].file[to.name] = true;
        torture->file = to;
    }
    return done(torture);
}

static bool removed(struct torture *torture, struct place place)
{
    struct slot *slot = begin_change(torture, 1, place, place);
    char path[NAME_BYTES], name[NAME_BYTES];

    path_of(torture, place, path);
    leaf_of(torture, place, name);
    op_remove(slot, name);
    if (!ask(torture, "remove %s", path))
        return false;
    torture->doubts = 0;
    if (place.name == NAMES)
        torture->directories[place.directory] = (struct directory){0};
    else
        torture->directories[place.directory].file[place.name] = false;
    return done(torture);
}

static bool made(struct torture *torture, struct place place)
{
    struct slot *slot = begin_change(torture, 1, place, place);
    char path[NAME_BYTES], name[NAME_BYTES];

    path_of(torture, place, path);
    leaf_of(torture, place, name);
    op_mkdir(slot, name);
    return ask(torture, "mkdir %s", path) && done(torture) && settle(torture);
}

static struct place any_file(struct torture *torture)
{
    unsigned directory;

    do
        directory = draw(torture, DIRECTORIES);
    while (!torture->directories[directory].exists);
    return (struct place){directory, draw(torture, NAMES)};
}

/* Choose the place to which a file is renamed. A final name never becomes a held one again, because
 * its object would rightly stay at a key that is no file's. */
static struct place any_target(struct torture *torture, struct place from)
{
    struct place to = any_file(torture);

    if (from.name < HELD)
        to.name %= HELD;
    return to;
}

/* Save as a checkpoint library does. In a quarter of the saves the rename comes before the sync. */
static bool save(struct torture *torture, struct place place)
{
    struct place final = any_target(torture, place);
    bool early = draw(torture, 4) == 0, same = !memcmp(&final, &place, sizeof place);
    unsigned writes = draw(torture, 6);

    if (!opened(torture, place, SHARE_WRITE, OPEN_UNCHECKED))
        return false;
    for (unsigned i = 0; i < writes; i++)
        if (!written(torture, (uint64_t)i * WRITE_BYTES, WRITE_BYTES - 16 * draw(torture, 2),
                     UNSTABLE))
            return false;
    if (early && !same && !renamed(torture, place, final))
        return false;
    if (!committed(torture) || !closed(torture))
        return false;
    return early || same || renamed(torture, place, final);
}

static bool append(struct torture *torture, struct place place)
{
    uint32_t length = UNIT_BYTES * (1 + draw(torture, 256));

    return opened(torture, place, SHARE_WRITE, OPEN_EXISTING) &&
           (torture->size_bytes + length > FILE_BYTES ||
            written(torture, torture->size_bytes, length, FILE_SYNC)) &&
           closed(torture);
}

static bool overwrite(struct torture *torture, struct place place)
{
    uint64_t offset = UNIT_BYTES * (uint64_t)draw(torture, (FILE_BYTES - WRITE_BYTES) / UNIT_BYTES);

    return opened(torture, place, SHARE_BOTH, OPEN_EXISTING) &&
           written(torture, offset, UNIT_BYTES * (1 + draw(torture, 1024)), UNSTABLE) &&
           (draw(torture, 4) == 0 || committed(torture)) && closed(torture);
}

static bool truncate_file(struct torture *torture, struct place place)
{
    uint64_t size = UNIT_BYTES * (uint64_t)draw(torture, FILE_BYTES / UNIT_BYTES);
    char path[NAME_BYTES];
    struct slot *slot;

    if (!opened(torture, place, SHARE_WRITE, OPEN_EXISTING))
        return false;
    slot = begin_on_file(torture, path);
    op_setsize(slot, &torture->worker->stateid, size);
    return ask(torture, "truncate %s %llu", path, (unsigned long long)size) && done(torture) &&
           closed(torture);
}

static bool read_back(struct torture *torture, struct place place)
{
    char path[NAME_BYTES];
    const uint8_t *bytes;
    struct slot *slot;
    size_t length;
    bool eof;

    if (!opened(torture, place, SHARE_READ, OPEN_EXISTING))
        return false;
    slot = begin_on_file(torture, path);
    op_read(slot, &torture->worker->stateid, 0, FILE_BYTES);
    if (!ask(torture, "read %s", path))
        return false;
    take(&torture->reply, OP_PUTFH);
    bytes = take_read(&torture->reply, &length, &eof);
    note_content(torture, bytes, length);
    return closed(torture);
}

/* Unlink a file, in half of the cases while it is open. */
static bool unlink_file(struct torture *torture, struct place place)
{
    if (draw(torture, 2))
        return removed(torture, place);
    return opened(torture, place, SHARE_WRITE, OPEN_EXISTING) &&
           written(torture, 0, WRITE_BYTES, UNSTABLE) && removed(torture, place) &&
           closed(torture);
}

static bool change_directory(struct torture *torture)
{
    struct place place = {ROOTS + draw(torture, DIRECTORIES - ROOTS), NAMES};
    struct place to = {ROOTS + draw(torture, DIRECTORIES - ROOTS), NAMES};

    if (!exists(torture, place))
        return made(torture, place);
    if (is_empty(&torture->directories[place.directory]) && draw(torture, 2))
        return removed(torture, place);
    if (to.directory == place.directory || !is_empty(&torture->directories[to.directory]))
        return true;
    return renamed(torture, place, to);
}

static bool act(struct torture *torture)
{
    struct place place = any_file(torture), to = any_target(torture, place);
    unsigned chance = draw(torture, 100);

    if (chance < 15)
        return change_directory(torture);
    if (!exists(torture, place))
        return chance < 50 ? opened(torture, place, SHARE_WRITE, OPEN_GUARDED) && closed(torture)
                           : save(torture, place);
    if (chance < 30)
        return memcmp(&place, &to, sizeof to) ? renamed(torture, place, to) : true;
    return chance < 42   ? append(torture, place)
           : chance < 57 ? overwrite(torture, place)
           : chance < 67 ? truncate_file(torture, place)
           : chance < 77 ? unlink_file(torture, place)
           : chance < 85 ? save(torture, place)
                         : read_back(torture, place);
}

static void stop(int number)
{
    (void)number;
    stopping = 1;
}

static void torture_open(struct worker *worker)
{
    struct torture *torture = calloc(1, sizeof *torture);
    struct attributes attributes;

    if (!torture || !options.log)
        die("torture needs --log");
    worker->torture = torture;
    torture->worker = worker;
    torture->client = &worker->client;
    log_open(torture);
    for (unsigned i = 0; i < ROOTS; i++) {
        struct directory *directory = &torture->directories[i];
        char name[NAME_BYTES];
        uint32_t status;

        leaf_of(torture, (struct place){i, NAMES}, name);
        status = call_mkdir(&worker->client, &worker->directory, name);
        if (status != NFS4ERR_EXIST)
            require(status, "CREATE", name);
        status =
            call_lookup(&worker->client, &worker->directory, name, &directory->fh, &attributes);
        require(status, "LOOKUP", name);
        directory->exists = true;
    }
    seed_random(worker);
    signal(SIGTERM, stop);
    worker->client.rpc.survives = true;
}

static void torture_run(struct worker *worker)
{
    struct torture *torture = worker->torture;

    while (!stopping && now_ns() < worker->deadline_ns) {
        uint64_t started = now_ns();

        if (act(torture)) {
            stats_done(&worker->client.stats, 0, now_ns() - started);
            continue;
        }
        /* The file of the lost request is read back before anything is changed again. */
        do
            come_back(torture);
        while (exists(torture, torture->file) && !read_back(torture, torture->file));
    }
}

const struct workload torture_workloads[] = {
    {"torture", WRITE_BYTES, true, torture_open, torture_run, NULL},
    {0},
};
