/* One writer of the torture test: what it believes is there, and the log of its answers. */
#pragma once

#include "load.h"

/* Directories: the writer's own, two that all writers share, and places for two directories in each
 * of these, which come, go and are renamed to each other. */
enum { HOME, SHARED, ROOTS = 3, DIRECTORIES = 3 * ROOTS };
/* Files of a directory that are this writer's. From HELD on their names end in .tmp. */
enum { HELD = 9, NAMES = 12 };

#define UNIT_BYTES 16u /* of content: the number of the WRITE, and where the unit stands */
#define WRITE_BYTES 16384u
#define FILE_BYTES (96u << 10)

/* A file's name in a directory; of NAMES: the directory itself. */
struct place {
    unsigned directory, name;
};

struct directory {
    bool exists;
    struct fh fh;
    bool file[NAMES];
};

struct torture {
    struct worker *worker;
    struct client *client;
    int log;
    uint64_t steps; /* requests that the log has */
    struct directory directories[DIRECTORIES];
    struct in reply;
    struct place file; /* the one at work */
    uint64_t size_bytes;
    unsigned doubts; /* how many places the request under way changes */
    struct place doubt[2];
};

void path_of(const struct torture *torture, struct place place, char path[NAME_BYTES]);
void leaf_of(const struct torture *torture, struct place place, char name[NAME_BYTES]);
const struct fh *parent_of(const struct torture *torture, struct place place);
bool exists(const struct torture *torture, struct place place);
bool is_empty(const struct directory *directory);

void log_open(struct torture *torture);
/* Append a line about the last request. */
void note(struct torture *torture, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Send what slot 0 holds, between a line that says so and one that says how it failed. True: it is
 * NFS4_OK; the caller notes what was answered. */
bool ask(struct torture *torture, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Note which WRITE each unit is of, as runs: number*units. 0: a hole; "bad": at a wrong place. */
void note_content(struct torture *torture, const uint8_t *bytes, size_t length);

/* Look at the places that a request may have changed, and believe what is there. False: lost. */
bool settle(struct torture *torture);
/* Come back as a new instance of this client, as often as it takes, and settle. */
void come_back(struct torture *torture);
