/* NFSv4.1 (RFC 8881): a client with its session on one connection, and the compounds it sends.
 *
 * A slot of the session keeps the request that is in flight on it, so that the request can be sent
 * again. nfs_begin() begins a compound with SEQUENCE, op_…() append to it, nfs_call() or pipeline()
 * (load.h) send it, and take_…() read the results in the same order.
 */
#pragma once

#include "rpc.h"
#include "stats.h"

enum {
    OP_ACCESS = 3,
    OP_CLOSE = 4,
    OP_COMMIT = 5,
    OP_CREATE = 6,
    OP_GETATTR = 9,
    OP_GETFH = 10,
    OP_LOOKUP = 15,
    OP_OPEN = 18,
    OP_PUTFH = 22,
    OP_PUTROOTFH = 24,
    OP_READ = 25,
    OP_READDIR = 26,
    OP_REMOVE = 28,
    OP_RENAME = 29,
    OP_SAVEFH = 32,
    OP_SETATTR = 34,
    OP_WRITE = 38,
    OP_EXCHANGE_ID = 42,
    OP_CREATE_SESSION = 43,
    OP_DESTROY_SESSION = 44,
    OP_SEQUENCE = 53,
    OP_DESTROY_CLIENTID = 57,
    OP_RECLAIM_COMPLETE = 58,
};

enum {
    NFS4_OK = 0,
    NFS4ERR_NOENT = 2,
    NFS4ERR_EXIST = 17,
    NFS4ERR_DELAY = 10008,
    NFS4ERR_EXPIRED = 10011,
    NFS4ERR_GRACE = 10013,
    NFS4ERR_STALE_CLIENTID = 10022,
    NFS4ERR_BAD_STATEID = 10025,
    NFS4ERR_ADMIN_REVOKED = 10047,
    NFS4ERR_BADSESSION = 10052,
    NFS4ERR_DEADSESSION = 10078,
    NFS_LOST = 0x7fffffff, /* ours: the connection was lost before the answer */
};

enum stable { UNSTABLE = 0, DATA_SYNC = 1, FILE_SYNC = 2 };
enum share { SHARE_READ = 1, SHARE_WRITE = 2, SHARE_BOTH = 3 };
enum open_how { OPEN_EXISTING, OPEN_UNCHECKED, OPEN_GUARDED };

#define SLOTS_MAX 64u
#define NAME_BYTES 256

struct fh {
    uint32_t length;
    uint8_t bytes[128];
};

struct stateid {
    uint8_t bytes[16];
};

/* The first bytes of a block: the file of the block, and its offset. */
struct stamp {
    uint64_t file;
    uint64_t offset;
};

struct attributes {
    uint32_t type; /* 1: file, 2: directory */
    uint64_t change;
    uint64_t size_bytes;
};

struct slot {
    uint32_t sequence; /* of the next request */
    uint32_t operations;
    struct out out;
    struct out parts[3];  /* head, payload (not copied), tail */
    uint8_t head[1024];
    uint8_t tail[128];
    bool in_flight;
    uint64_t retry_at_ns; /* when to send the request again; 0: not delayed */
    uint64_t pause_ns;    /* the last pause of the request; 0: it was not delayed */
    uint64_t started_ns;  /* of the unit of work that the request is a part of */
    /* For the workload that uses the slot. */
    uint64_t number;
    unsigned step;
    struct fh fh;
    struct stateid stateid;
};

struct client {
    struct rpc rpc;
    unsigned number;
    const char *host, *port;
    uint64_t clientid;
    uint32_t create_sequence;
    uint8_t session[16];
    unsigned slots;
    struct slot slot[SLOTS_MAX];
    struct stats stats;
};

/* Connect, and make the client id and its session. Ends the program on an error. */
void client_connect(struct client *client, const char *host, const char *port, unsigned number,
                    unsigned slots);
/* Destroy the session and the client id. */
void client_disconnect(struct client *client);
/* Drop the connection without telling the server, and connect as a new instance of the same
 * client. False: the connection is lost again (client->rpc.survives). */
bool client_reconnect(struct client *client);

void nfs_begin(struct client *client, struct slot *slot, bool cache_reply);
void nfs_send(struct client *client, struct slot *slot);
/* Read the head of a reply for the slot. Returns NFS4_OK or the compound's status. */
uint32_t nfs_reply(struct slot *slot, struct in *reply);
bool nfs_is_delay(uint32_t status);
bool nfs_is_lost_lease(uint32_t status);
/* Send the request of slot 0 and wait for the reply; a delayed request is sent again. NFS_LOST: the
 * outcome is not known. */
uint32_t nfs_call(struct client *client, struct in *reply);

void op_putfh(struct slot *slot, const struct fh *fh);
void op_plain(struct slot *slot, uint32_t operation); /* an operation without arguments */
void op_lookup(struct slot *slot, const char *name);
void op_getattr(struct slot *slot);
void op_access(struct slot *slot);
void op_open(struct client *client, struct slot *slot, const char *name, enum share share,
             enum open_how how, bool truncate);
void op_close(struct slot *slot, const struct stateid *stateid);
/* Write the stamp, and then the block without its first bytes. The stamp is not written into the
 * block, because requests in flight share the block. */
void op_write(struct slot *slot, const struct stateid *stateid, uint64_t offset,
              const struct stamp *stamp, const uint8_t *block, uint32_t length, enum stable stable);
void op_read(struct slot *slot, const struct stateid *stateid, uint64_t offset, uint32_t length);
void op_commit(struct slot *slot);
/* Set the size of the current file. */
void op_setsize(struct slot *slot, const struct stateid *stateid, uint64_t size_bytes);
void op_rename(struct slot *slot, const char *from, const char *to);
void op_remove(struct slot *slot, const char *name);
void op_mkdir(struct slot *slot, const char *name);
void op_readdir(struct slot *slot, uint64_t cookie, uint64_t verifier, uint32_t bytes);

/* Read the head of an operation's result. Ends the program unless the operation succeeded. */
void take(struct in *reply, uint32_t operation);
void take_getfh(struct in *reply, struct fh *fh);
void take_getattr(struct in *reply, struct attributes *attributes);
void take_open(struct in *reply, struct stateid *stateid);
uint32_t take_write(struct in *reply, uint64_t *verifier);
uint64_t take_commit(struct in *reply); /* the verifier */
const uint8_t *take_read(struct in *reply, size_t *length, bool *eof);
/* Read one page of a listing, and call each(name, attributes, context) for its entries. True: this
 * is the last page. */
typedef void (*entry_fn)(const char *name, size_t length, const struct attributes *, void *context);
bool take_readdir(struct in *reply, uint64_t *cookie, uint64_t *verifier, entry_fn each,
                  void *context);

/* Whole calls on slot 0; each returns the status. */
uint32_t call_lookup(struct client *client, const struct fh *directory, const char *name,
                     struct fh *fh, struct attributes *attributes);
uint32_t call_open(struct client *client, const struct fh *directory, const char *name,
                   enum share share, enum open_how how, bool truncate, struct fh *fh,
                   struct stateid *stateid);
uint32_t call_close(struct client *client, const struct fh *fh, const struct stateid *stateid);
uint32_t call_commit(struct client *client, const struct fh *fh, uint64_t *verifier);
uint32_t call_rename(struct client *client, const struct fh *directory, const char *from,
                     const char *to);
uint32_t call_remove(struct client *client, const struct fh *directory, const char *name);
uint32_t call_mkdir(struct client *client, const struct fh *directory, const char *name);
