/* The state of a writer of the torture: the names that exist, and the log of its answers. */
#include "torture.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define PAUSE_US 20000

static unsigned root_of(unsigned directory)
{
    return directory < ROOTS ? directory : (directory - ROOTS) / 2;
}

void leaf_of(const struct torture *torture, struct place place, char name[NAME_BYTES])
{
    unsigned writer = torture->client->number;

    if (place.name < NAMES)
        snprintf(name, NAME_BYTES, "w%u-f%u%s", writer, place.name,
                 place.name < HELD ? "" : ".tmp");
    else if (place.directory == HOME)
        snprintf(name, NAME_BYTES, "w%u", writer);
    else if (place.directory < ROOTS)
        snprintf(name, NAME_BYTES, "shared%u", place.directory - SHARED);
    else
        snprintf(name, NAME_BYTES, "w%u-d%u", writer, (place.directory - ROOTS) % 2);
}

void path_of(const struct torture *torture, struct place place, char path[NAME_BYTES])
{
    struct place above[] = {{root_of(place.directory), NAMES}, {place.directory, NAMES}, place};
    size_t length = 0;

    for (unsigned i = 0; i < 3; i++) {
        char name[NAME_BYTES];

        if ((i == 1 && place.directory < ROOTS) || (i == 2 && place.name == NAMES))
            continue;
        leaf_of(torture, above[i], name);
        length += (size_t)snprintf(path + length, NAME_BYTES - length, "%s%.100s",
                                   length ? "/" : "", name);
    }
}

const struct fh *parent_of(const struct torture *torture, struct place place)
{
    if (place.name < NAMES)
        return &torture->directories[place.directory].fh;
    if (place.directory < ROOTS)
        return &torture->worker->directory;
    return &torture->directories[root_of(place.directory)].fh;
}

bool exists(const struct torture *torture, struct place place)
{
    const struct directory *directory = &torture->directories[place.directory];

    return place.name == NAMES ? directory->exists : directory->file[place.name];
}

bool is_empty(const struct directory *directory)
{
    for (unsigned name = 0; name < NAMES; name++)
        if (directory->file[name])
            return false;
    return true;
}

void log_open(struct torture *torture)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/w%u.log", options.log, torture->client->number);
    torture->log = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (torture->log < 0)
        die("cannot make %s", path);
}

static void note_values(struct torture *torture, const char *format, va_list values)
{
    static _Thread_local char line[1 << 17];
    uint64_t now = now_ns();
    int length = snprintf(line, sizeof line, "%llu %llu.%06llu ",
                          (unsigned long long)torture->steps,
                          (unsigned long long)(now / 1000000000u),
                          (unsigned long long)(now / 1000u % 1000000u));

    length += vsnprintf(line + length, sizeof line - (size_t)length, format, values);
    if ((size_t)length + 1 >= sizeof line)
        die("a line of the log is too long");
    line[length++] = '\n';
    if (write(torture->log, line, (size_t)length) != length)
        die("cannot write the log");
}

void note(struct torture *torture, const char *format, ...)
{
    va_list values;

    va_start(values, format);
    note_values(torture, format, values);
    va_end(values);
}

bool ask(struct torture *torture, const char *format, ...)
{
    uint32_t status;
    va_list values;

    torture->steps++;
    va_start(values, format);
    note_values(torture, format, values);
    va_end(values);
    status = nfs_call(torture->client, &torture->reply);
    if (status == NFS_LOST)
        note(torture, "lost");
    else if (nfs_is_lost_lease(status))
        note(torture, "expired %u", status);
    else if (status != NFS4_OK) {
        note(torture, "failed %u", status);
        stats_error(&torture->client->stats, "step %llu of writer %u: NFS4ERR %u",
                    (unsigned long long)torture->steps, torture->client->number, status);
    }
    return status == NFS4_OK;
}

void note_content(struct torture *torture, const uint8_t *bytes, size_t length)
{
    static _Thread_local char text[1 << 16];
    size_t written = 0, run = 0;
    struct stamp unit;

    text[0] = '\0';
    for (size_t at = 0; at + UNIT_BYTES <= length; at += UNIT_BYTES) {
        uint64_t next = UINT64_MAX;

        memcpy(&unit, bytes + at, sizeof unit);
        run++;
        if ((unit.file || unit.offset) && unit.offset != at)
            unit.file = UINT64_MAX;
        if (at + 2 * UNIT_BYTES <= length)
            memcpy(&next, bytes + at + UNIT_BYTES, sizeof next);
        if (next == unit.file && unit.file != UINT64_MAX)
            continue;
        if (sizeof text - written < 64)
            die("too many runs of content");
        if (unit.file == UINT64_MAX)
            written += (size_t)snprintf(text + written, 64, " bad*%zu", run);
        else
            written += (size_t)snprintf(text + written, 64, " %llu*%zu",
                                        (unsigned long long)unit.file, run);
        run = 0;
    }
    note(torture, "ok %zu%s", length, text);
}

/* Look a place up and log the answer. False: the connection is lost, or the LOOKUP failed. */
static bool look(struct torture *torture, struct place place, bool *found, struct fh *fh)
{
    struct attributes attributes;
    char path[NAME_BYTES], name[NAME_BYTES];
    uint32_t status;

    path_of(torture, place, path);
    leaf_of(torture, place, name);
    status = call_lookup(torture->client, parent_of(torture, place), name, fh, &attributes);
    *found = status == NFS4_OK;
    if (status == NFS4ERR_NOENT)
        note(torture, "see %s absent", path);
    else if (status == NFS4_OK && attributes.type == 1)
        note(torture, "see %s file %llu", path, (unsigned long long)attributes.size_bytes);
    else if (status == NFS4_OK)
        note(torture, "see %s directory", path);
    else if (status != NFS_LOST)
        note(torture, "failed %u", status);
    return status == NFS4_OK || status == NFS4ERR_NOENT;
}

bool settle(struct torture *torture)
{
    bool found[2];
    struct fh fh[2];

    for (unsigned i = 0; i < torture->doubts; i++)
        if (!look(torture, torture->doubt[i], &found[i], &fh[i]))
            return false;
    for (unsigned i = 0; i < torture->doubts; i++) {
        struct place place = torture->doubt[i];
        struct directory *directory = &torture->directories[place.directory];

        if (place.name < NAMES) {
            directory->file[place.name] = found[i];
        } else if (i == 1 && found[1] && !found[0]) {
            /* This place is the target of a rename that was made. */
            *directory = torture->directories[torture->doubt[0].directory];
            torture->directories[torture->doubt[0].directory] = (struct directory){0};
        } else if (torture->doubts == 1) {
            *directory = (struct directory){.exists = found[0], .fh = fh[0]};
        }
    }
    torture->doubts = 0;
    return true;
}

void come_back(struct torture *torture)
{
    while (!client_reconnect(torture->client) || !settle(torture))
        usleep(PAUSE_US);
    note(torture, "back");
}
