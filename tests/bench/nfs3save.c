/* Saves a checkpoint over NFSv3 (RFC 1813), for servers without NFSv4:
 * nfs3save HOST PORT RANKS BYTES PREFIX
 *
 * Each rank has a connection of its own. It writes PREFIX<n>.tmp in the export's root with UNSTABLE
 * WRITEs of 1 MiB, four at a time, sends COMMIT and renames the file to PREFIX<n>. The output is
 * the same as of nfsload.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "nfsload/rpc.h"
#include "nfsload/stats.h"

#define MIB (1u << 20)
#define DEPTH 4u

enum { NFS = 100003, MOUNT = 100005, VERSION = 3 };
enum { MOUNT_MNT = 1, NFS_WRITE = 7, NFS_CREATE = 8, NFS_RENAME = 14, NFS_COMMIT = 21 };

struct handle {
    size_t length;
    uint8_t bytes[64];
};

struct rank {
    unsigned number;
    struct rpc rpc;
    uint8_t head[512];
    struct handle root, file;
    struct stats stats;
};

static const char *host, *port, *prefix;
static uint64_t file_bytes;
static uint8_t block[MIB];
static pthread_barrier_t ready;

static struct out begin(struct rank *rank, uint32_t program, uint32_t procedure)
{
    struct out out = {rank->head, rank->head + sizeof rank->head};

    rpc_begin(&out, program, VERSION, procedure);
    return out;
}

static void put_handle(struct out *out, const struct handle *handle)
{
    put_opaque(out, handle->bytes, handle->length);
}

static void get_handle(struct in *in, struct handle *handle)
{
    const uint8_t *bytes = get_opaque(in, &handle->length);

    if (handle->length > sizeof handle->bytes)
        die("a file handle of %zu bytes", handle->length);
    memcpy(handle->bytes, bytes, handle->length);
}

static void send_head(struct rank *rank, struct out *out, uint8_t tag, const void *payload,
                      size_t length)
{
    const struct out parts[3] = {
        {rank->head, out->at}, {(uint8_t *)payload, (uint8_t *)payload + length}, {NULL, NULL}};

    rpc_send(&rank->rpc, tag, parts);
}

static uint8_t receive(struct rank *rank, struct in *reply, const char *what)
{
    uint8_t tag = rpc_receive(&rank->rpc, reply);
    uint32_t status = get_u32(reply);

    if (status)
        die("%s: status %u", what, status);
    return tag;
}

static void mount_root(struct rank *rank)
{
    struct out out = begin(rank, MOUNT, MOUNT_MNT);
    struct in reply;

    put_string(&out, "/");
    send_head(rank, &out, 0, NULL, 0);
    receive(rank, &reply, "MNT");
    get_handle(&reply, &rank->root);
}

static void create(struct rank *rank, const char *name)
{
    struct out out = begin(rank, NFS, NFS_CREATE);
    struct in reply;

    put_handle(&out, &rank->root);
    put_string(&out, name);
    put_u32(&out, 0); /* unchecked */
    put_u32(&out, 1); /* mode is set; owner, group, size and times are not */
    put_u32(&out, 0644);
    for (int absent = 0; absent < 5; absent++)
        put_u32(&out, 0);
    send_head(rank, &out, 0, NULL, 0);
    receive(rank, &reply, "CREATE");
    if (!get_u32(&reply))
        die("CREATE gave no file handle");
    get_handle(&reply, &rank->file);
}

static void send_write(struct rank *rank, uint8_t tag, uint64_t offset)
{
    struct out out = begin(rank, NFS, NFS_WRITE);

    put_handle(&out, &rank->file);
    put_u64(&out, offset);
    put_u32(&out, MIB);
    put_u32(&out, 0); /* unstable */
    put_u32(&out, MIB);
    send_head(rank, &out, tag, block, MIB);
}

static void take_write(struct in *reply)
{
    if (get_u32(reply)) /* attributes before */
        (void)get_fixed(reply, 24);
    if (get_u32(reply)) /* attributes after */
        (void)get_fixed(reply, 84);
    if (get_u32(reply) != MIB)
        die("a short WRITE");
}

static void write_file(struct rank *rank)
{
    uint64_t sent = 0, started_ns[DEPTH];
    unsigned busy = 0;

    for (; busy < DEPTH && sent < file_bytes; busy++, sent += MIB) {
        started_ns[busy] = now_ns();
        send_write(rank, (uint8_t)busy, sent);
    }
    while (busy) {
        struct in reply;
        uint8_t tag = receive(rank, &reply, "WRITE");

        take_write(&reply);
        stats_done(&rank->stats, MIB, now_ns() - started_ns[tag % DEPTH]);
        if (sent >= file_bytes) {
            busy--;
            continue;
        }
        started_ns[tag % DEPTH] = now_ns();
        send_write(rank, tag, sent);
        sent += MIB;
    }
}

static void commit(struct rank *rank)
{
    struct out out = begin(rank, NFS, NFS_COMMIT);
    struct in reply;

    put_handle(&out, &rank->file);
    put_u64(&out, 0);
    put_u32(&out, 0);
    send_head(rank, &out, 0, NULL, 0);
    receive(rank, &reply, "COMMIT");
}

static void rename_file(struct rank *rank, const char *from, const char *to)
{
    struct out out = begin(rank, NFS, NFS_RENAME);
    struct in reply;

    put_handle(&out, &rank->root);
    put_string(&out, from);
    put_handle(&out, &rank->root);
    put_string(&out, to);
    send_head(rank, &out, 0, NULL, 0);
    receive(rank, &reply, "RENAME");
}

static void *save(void *context)
{
    struct rank *rank = context;
    char temporary[32], final[32];

    snprintf(final, sizeof final, "%s%u", prefix, rank->number);
    snprintf(temporary, sizeof temporary, "%s%u.tmp", prefix, rank->number);
    rpc_connect(&rank->rpc, host, port);
    mount_root(rank);
    pthread_barrier_wait(&ready);
    rank->stats.started_ns = now_ns();
    create(rank, temporary);
    write_file(rank);
    commit(rank);
    rename_file(rank, temporary, final);
    rank->stats.ended_ns = now_ns();
    rpc_close(&rank->rpc);
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned ranks = argc == 6 && strlen(argv[5]) < 16 ? (unsigned)atoi(argv[3]) : 0;
    pthread_t *threads = calloc(ranks + 1, sizeof *threads);
    struct stats **all = calloc(ranks + 1, sizeof *all);

    if (!ranks)
        die("usage: nfs3save HOST PORT RANKS BYTES PREFIX");
    host = argv[1];
    port = argv[2];
    prefix = argv[5];
    file_bytes = strtoull(argv[4], NULL, 10);
    for (size_t at = 0; at < sizeof block; at++)
        block[at] = (uint8_t)(at * 2654435761u >> 13);
    if (!threads || !all || pthread_barrier_init(&ready, NULL, ranks))
        die("out of memory");
    for (unsigned i = 0; i < ranks; i++) {
        struct rank *rank = calloc(1, sizeof *rank);

        if (!rank)
            die("out of memory");
        rank->number = i;
        all[i] = &rank->stats;
        if (pthread_create(&threads[i], NULL, save, rank))
            die("cannot start a thread");
    }
    for (unsigned i = 0; i < ranks; i++)
        pthread_join(threads[i], NULL);
    return stats_print("save", all, ranks) ? 0 : 1;
}
