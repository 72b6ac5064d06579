/* A session of NFSv4.1: its creation, the requests on its slots, its end. */
#include <stdio.h>
#include <unistd.h>

#include "nfs4.h"

#define PROGRAM 100003u
#define VERSION 4u
#define COMPOUND 1u
/* The pauses of Linux: each is twice as long as the one before. Linux pauses for up to 15 s, but it
 * renews its lease meanwhile. Here only requests renew it. */
#define DELAY_PAUSE_NS 100000000ull
#define DELAY_PAUSE_MAX_NS 3200000000ull

/* The offsets, in the head of a request, of the number of operations and of SEQUENCE's values. */
#define AT_OPERATIONS (RPC_HEAD_BYTES + 8)
#define AT_SEQUENCE (AT_OPERATIONS + 4 + 4 + 16)

static void begin(struct slot *slot)
{
    slot->out = (struct out){slot->head, slot->head + sizeof slot->head};
    slot->parts[0] = slot->parts[1] = slot->parts[2] = (struct out){slot->head, slot->head};
    slot->operations = 0;
    rpc_begin(&slot->out, PROGRAM, VERSION, COMPOUND);
    put_string(&slot->out, "");
    put_u32(&slot->out, 1); /* minor version */
    put_u32(&slot->out, 0); /* operations, see nfs_send */
}

void nfs_begin(struct client *client, struct slot *slot, bool cache_reply)
{
    begin(slot);
    op_plain(slot, OP_SEQUENCE);
    put_fixed(&slot->out, client->session, sizeof client->session);
    put_u32(&slot->out, 0); /* sequence, see nfs_send */
    put_u32(&slot->out, (uint32_t)(slot - client->slot));
    put_u32(&slot->out, client->slots - 1);
    put_u32(&slot->out, cache_reply);
}

static void send_parts(struct client *client, struct slot *slot)
{
    struct out parts[3] = {slot->parts[0], slot->parts[1], slot->parts[2]};
    struct out count = {slot->head + AT_OPERATIONS, slot->head + AT_OPERATIONS + 4};

    put_u32(&count, slot->operations);
    if (parts[1].at == parts[1].end)
        parts[0] = (struct out){slot->head, slot->out.at};
    else
        parts[2] = (struct out){slot->tail, slot->out.at};
    rpc_send(&client->rpc, (uint8_t)(slot - client->slot), parts);
}

void nfs_send(struct client *client, struct slot *slot)
{
    struct out sequence = {slot->head + AT_SEQUENCE, slot->head + AT_SEQUENCE + 4};

    put_u32(&sequence, slot->sequence);
    slot->in_flight = true;
    slot->retry_at_ns = 0;
    send_parts(client, slot);
}

/* Read the head of a compound's reply. Returns its status; the results follow. */
static uint32_t compound(struct in *reply)
{
    uint32_t status = get_u32(reply);

    (void)get_fixed(reply, get_u32(reply)); /* tag */
    get_u32(reply);                         /* number of results */
    return status;
}

uint32_t nfs_reply(struct slot *slot, struct in *reply)
{
    uint32_t status = compound(reply), own;

    slot->in_flight = false;
    if (get_u32(reply) != OP_SEQUENCE)
        die("a reply does not begin with SEQUENCE");
    own = get_u32(reply);
    if (own == NFS4_OK) {
        /* A failed SEQUENCE does not advance the slot (RFC 8881, 2.10.6.1). */
        slot->sequence++;
        (void)get_fixed(reply, 16 + 5 * 4);
    }
    if (nfs_is_delay(status)) {
        slot->pause_ns = slot->pause_ns ? 2 * slot->pause_ns : DELAY_PAUSE_NS;
        if (slot->pause_ns > DELAY_PAUSE_MAX_NS)
            slot->pause_ns = DELAY_PAUSE_MAX_NS;
        slot->retry_at_ns = now_ns() + slot->pause_ns;
    } else {
        slot->pause_ns = 0;
    }
    return status;
}

bool nfs_is_delay(uint32_t status)
{
    return status == NFS4ERR_DELAY || status == NFS4ERR_GRACE;
}

bool nfs_is_lost_lease(uint32_t status)
{
    return status == NFS4ERR_EXPIRED || status == NFS4ERR_STALE_CLIENTID ||
           status == NFS4ERR_BAD_STATEID || status == NFS4ERR_ADMIN_REVOKED ||
           status == NFS4ERR_BADSESSION || status == NFS4ERR_DEADSESSION;
}

uint32_t nfs_call(struct client *client, struct in *reply)
{
    for (;;) {
        struct slot *slot = client->slot;
        uint32_t status;

        nfs_send(client, slot);
        if (rpc_receive(&client->rpc, reply) != 0)
            die("a reply for a slot that has no request");
        if (client->rpc.lost)
            return NFS_LOST;
        status = nfs_reply(slot, reply);
        if (!nfs_is_delay(status))
            return status;
        client->stats.delays++;
        usleep(DELAY_PAUSE_NS / 1000);
    }
}

/* Send a compound without SEQUENCE, and read its first result. False: the connection is lost, or
 * the operation failed and client->rpc.survives. */
static bool bare(struct client *client, struct in *reply, uint32_t operation)
{
    uint32_t status;

    send_parts(client, client->slot);
    rpc_receive(&client->rpc, reply);
    if (client->rpc.lost)
        return false;
    status = compound(reply);
    if (status != NFS4_OK && client->rpc.survives)
        return false; /* the caller connects again */
    if (status != NFS4_OK)
        die("operation %u of the session's set-up: NFS4ERR %u", operation, status);
    take(reply, operation);
    return true;
}

static bool exchange_id(struct client *client)
{
    struct slot *slot = client->slot;
    uint64_t verifier = now_ns();
    char owner[64];
    struct in reply;

    /* Two clients with one name would end each other's state. */
    snprintf(owner, sizeof owner, "nfsload-%d-%u", (int)getpid(), client->number);
    begin(slot);
    op_plain(slot, OP_EXCHANGE_ID);
    put_fixed(&slot->out, &verifier, sizeof verifier);
    put_string(&slot->out, owner);
    put_u32(&slot->out, 0x10000); /* not a pNFS client */
    put_u32(&slot->out, 0);       /* no state protection */
    put_u32(&slot->out, 0);       /* no description of the implementation */
    if (!bare(client, &reply, OP_EXCHANGE_ID))
        return false;
    client->clientid = get_u64(&reply);
    client->create_sequence = get_u32(&reply);
    return true;
}

static void channel(struct out *out, uint32_t record_bytes, uint32_t slots)
{
    put_u32(out, 0);            /* padding of heads */
    put_u32(out, record_bytes); /* largest request */
    put_u32(out, record_bytes); /* largest reply */
    put_u32(out, 4096);         /* largest reply that is cached */
    put_u32(out, 16);           /* operations */
    put_u32(out, slots);
    put_u32(out, 0); /* no RDMA */
}

static bool create_session(struct client *client)
{
    struct slot *slot = client->slot;
    struct in reply;
    uint32_t slots;

    begin(slot);
    op_plain(slot, OP_CREATE_SESSION);
    put_u64(&slot->out, client->clientid);
    put_u32(&slot->out, client->create_sequence);
    put_u32(&slot->out, 0); /* no callbacks on this connection */
    channel(&slot->out, RPC_RECORD_BYTES, client->slots);
    channel(&slot->out, 4096, 1);
    put_u32(&slot->out, 0x40000000); /* program of callbacks */
    put_u32(&slot->out, 1);
    put_u32(&slot->out, 0); /* callbacks without security */
    if (!bare(client, &reply, OP_CREATE_SESSION))
        return false;
    memcpy(client->session, get_fixed(&reply, 16), 16);
    (void)get_fixed(&reply, 2 * 4); /* sequence, flags */
    (void)get_fixed(&reply, 5 * 4); /* the fore channel up to its operations */
    slots = get_u32(&reply);
    if (slots < client->slots)
        die("the server's sessions have %u slots, %u are asked for", slots, client->slots);
    return true;
}

static bool establish(struct client *client)
{
    struct in reply;
    uint32_t status;

    rpc_connect(&client->rpc, client->host, client->port);
    if (!exchange_id(client) || !create_session(client))
        return false;
    for (unsigned i = 0; i < client->slots; i++) {
        client->slot[i].sequence = 1;
        client->slot[i].in_flight = false;
        client->slot[i].retry_at_ns = 0;
    }
    nfs_begin(client, client->slot, false);
    op_plain(client->slot, OP_RECLAIM_COMPLETE);
    put_u32(&client->slot->out, 0); /* of all file systems */
    status = nfs_call(client, &reply);
    if (status != NFS4_OK && !client->rpc.survives)
        die("RECLAIM_COMPLETE failed");
    return status == NFS4_OK;
}

void client_connect(struct client *client, const char *host, const char *port, unsigned number,
                    unsigned slots)
{
    client->host = host;
    client->port = port;
    client->number = number;
    client->slots = slots;
    establish(client);
}

void client_disconnect(struct client *client)
{
    struct slot *slot = client->slot;
    struct in reply;

    begin(slot);
    op_plain(slot, OP_DESTROY_SESSION);
    put_fixed(&slot->out, client->session, sizeof client->session);
    bare(client, &reply, OP_DESTROY_SESSION);
    begin(slot);
    op_plain(slot, OP_DESTROY_CLIENTID);
    put_u64(&slot->out, client->clientid);
    bare(client, &reply, OP_DESTROY_CLIENTID);
    rpc_close(&client->rpc);
}

bool client_reconnect(struct client *client)
{
    rpc_close(&client->rpc);
    return establish(client);
}
