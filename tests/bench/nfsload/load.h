/* Workloads: what each connection prepares, which part is measured, and how requests overlap. */
#pragma once

#include "nfs4.h"

#define MIB (1u << 20)

struct options {
    const char *host, *port, *export, *workload;
    unsigned connections;
    unsigned depth;        /* requests in flight on each connection */
    uint32_t size_bytes;   /* of one READ, WRITE or page of a listing */
    uint64_t file_bytes;   /* of each connection's file */
    uint64_t count;        /* operations of all connections together */
    double seconds;        /* also stop after this time; 0: only by count */
    const char *directory; /* below the export; made if it is missing */
    const char *prefix;    /* of names */
    const char *to;        /* prefix of new names */
    enum stable stable;
    bool commit; /* append: COMMIT after each WRITE */
    bool apart;  /* each connection works in a directory of its own */
    const char *log; /* torture: directory of the writers' logs */
    uint64_t seed;   /* torture, refill: of the random choices; refill: of the content */
    double pause_seconds; /* refill: after each save */
    bool verify; /* read: compare with the content that write wrote */
};

extern struct options options;

/* One connection of a workload. */
struct worker {
    struct client client;
    struct fh directory;
    struct fh file;
    struct stateid stateid;
    uint8_t *block;         /* size_bytes to write */
    uint64_t next;          /* number of the next unit of work */
    uint64_t units;         /* this worker's number of units; UINT64_MAX: until the deadline */
    uint64_t deadline_ns;
    uint64_t verifier;      /* of the WRITEs since the last COMMIT */
    bool verifier_known;
    uint64_t random;
    struct torture *torture; /* of the workload of that name */
};

struct workload {
    const char *name;
    uint32_t size_bytes; /* default of options.size_bytes */
    bool bounded;        /* by file_bytes or by what exists; else needs --count or --seconds */
    void (*open)(struct worker *worker);  /* before the measurement; may be NULL */
    void (*run)(struct worker *worker);   /* measured */
    void (*close)(struct worker *worker); /* after the measurement; may be NULL */
};

/* The last element of each array has no name. */
extern const struct workload data_workloads[], name_workloads[], save_workloads[], mixed_workloads[],
    torture_workloads[], refill_workloads[];

/* A kind of unit of work, which takes one or several requests on one slot. */
struct unit {
    /* Build the first request of unit slot->number. */
    void (*first)(struct worker *worker, struct slot *slot);
    /* Read a reply that is NFS4_OK. True: the unit is done. False: its next request is built. */
    bool (*reply)(struct worker *worker, struct slot *slot, struct in *reply);
    uint64_t bytes; /* payload of a unit */
};

/* Do worker->units units, options.depth of them at a time, until the deadline. */
void pipeline(struct worker *worker, const struct unit *unit);
/* Return this worker's share of a total. */
uint64_t share_of(const struct worker *worker, uint64_t total);
/* End the program unless the status of a call is NFS4_OK. */
void require(uint32_t status, const char *what, const char *name);
uint64_t next_random(struct worker *worker);
/* Let this worker's random numbers follow from --seed. */
void seed_random(struct worker *worker);

/* Content: all blocks are the same except for their stamp. */
void block_fill(uint8_t *block, size_t length);
bool block_is(const uint8_t *found, const uint8_t *block, size_t length, const struct stamp *stamp);
/* Write a stamp over each unit of a block: its number and the offset of the unit. */
void block_stamp(uint8_t *block, uint64_t number, uint64_t offset, size_t length);
/* Note the verifier of a WRITE, and count an error if it differs from the one before: the server
 * has then restarted since the last COMMIT. */
void note_write(struct worker *worker, uint64_t verifier);
/* COMMIT worker->file and compare verifiers. */
void commit_file(struct worker *worker);
/* Write file_bytes from the beginning of worker->file, depth WRITEs at a time. */
void write_file(struct worker *worker);
