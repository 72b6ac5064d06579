/* One writer of the torture test: the names that it knows, and the log of its answers. */
#pragma once

#include "load.h"

/* Directories: the writer's own, two that all writers share, and places for two directories in each
 * of these three. Directories at these places are made, removed and renamed. */
enum { HOME, SHARED, ROOTS = 3, DIRECTORIES = 3 * ROOTS };
/* The number of files that this writer may have in a directory. From HELD on, their names end in
 * .tmp. */
enum { HELD = 9, NAMES = 12 };

#define UNIT_BYTES 16u /* of content: the number of the WRITE, and the offset of the unit */
#define WRITE_BYTES 16384u
#define FILE_BYTES (96u << 10)

/* A file's place in a directory. With the name NAMES it is the directory itself. */
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
    uint64_t steps; /* number of requests in the log */
    struct directory directories[DIRECTORIES];
    struct in reply;
    struct place file; /* the file of the current requests */
    uint64_t size_bytes;
    unsigned doubts; /* number of places that the current request changes */
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
/* Log the request of slot 0, send it, and log a failure. True: the answer is NFS4_OK, and the
 * caller logs it. */
bool ask(struct torture *torture, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Log the number of the WRITE of each unit, as runs: number*units. 0: a hole; "bad": at a wrong
 * offset. */
void note_content(struct torture *torture, const uint8_t *bytes, size_t length);

/* Look the places up that a request may have changed, and adopt what is there. False: the
 * connection is lost, or a LOOKUP failed. */
bool settle(struct torture *torture);
/* Connect as a new instance of this client and settle; repeat both until they succeed. */
void come_back(struct torture *torture);
