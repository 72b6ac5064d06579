/* Keeps as many requests in flight as asked, and repeats those that get NFS4ERR_DELAY. */
#include "load.h"

void require(uint32_t status, const char *what, const char *name)
{
    if (status != NFS4_OK)
        die("%s %s: NFS4ERR %u", what, name, status);
}

uint64_t share_of(const struct worker *worker, uint64_t total)
{
    if (!total)
        return UINT64_MAX; /* until the deadline */
    return total / options.connections + (worker->client.number < total % options.connections);
}

uint64_t next_random(struct worker *worker)
{
    worker->random ^= worker->random << 13;
    worker->random ^= worker->random >> 7;
    worker->random ^= worker->random << 17;
    return worker->random;
}

void seed_random(struct worker *worker)
{
    for (unsigned i = 0; i < 4; i++)
        worker->random =
            (worker->random ^ options.seed) * 6364136223846793005u + 1442695040888963407u;
    worker->random |= !worker->random;
}

static bool start(struct worker *worker, struct slot *slot, const struct unit *unit)
{
    uint64_t now = now_ns();

    if (worker->next >= worker->units || now >= worker->deadline_ns)
        return false;
    slot->number = worker->next++;
    slot->step = 0;
    slot->started_ns = now;
    unit->first(worker, slot);
    nfs_send(&worker->client, slot);
    return true;
}

/* Send the requests again whose delay is over. Returns the ms until the next one is due; -1: no
 * request is delayed. */
static int resend(struct client *client)
{
    uint64_t now = now_ns(), first = UINT64_MAX;

    for (unsigned i = 0; i < options.depth; i++) {
        struct slot *slot = &client->slot[i];

        if (!slot->retry_at_ns)
            continue;
        if (slot->retry_at_ns <= now)
            nfs_send(client, slot);
        else if (slot->retry_at_ns < first)
            first = slot->retry_at_ns;
    }
    return first == UINT64_MAX ? -1 : (int)((first - now) / 1000000 + 1);
}

/* Handle one reply. True: its unit has ended. */
static bool attend(struct worker *worker, struct slot *slot, struct in *reply,
                   const struct unit *unit, unsigned *delayed)
{
    struct stats *stats = &worker->client.stats;
    uint32_t status;

    if (!slot->in_flight)
        die("a reply for a slot that has no request");
    status = nfs_reply(slot, reply);
    if (nfs_is_delay(status)) {
        stats->delays++;
        ++*delayed;
        return false;
    }
    if (status != NFS4_OK) {
        stats_error(stats, "step %u of unit %llu: NFS4ERR %u", slot->step,
                    (unsigned long long)slot->number, status);
        return true;
    }
    if (unit->reply(worker, slot, reply)) {
        stats_done(stats, unit->bytes, now_ns() - slot->started_ns);
        return true;
    }
    slot->step++;
    nfs_send(&worker->client, slot);
    return false;
}

void pipeline(struct worker *worker, const struct unit *unit)
{
    struct client *client = &worker->client;
    unsigned busy = 0, delayed = 0;

    while (busy < options.depth && start(worker, &client->slot[busy], unit))
        busy++;
    while (busy) {
        struct in reply;
        struct slot *slot;

        if (delayed) {
            int pause_ms = resend(client);

            if (pause_ms < 0)
                delayed = 0;
            else if (!rpc_ready(&client->rpc, pause_ms))
                continue;
        }
        slot = &client->slot[rpc_receive(&client->rpc, &reply) % SLOTS_MAX];
        if (attend(worker, slot, &reply, unit, &delayed) && !start(worker, slot, unit))
            busy--;
    }
}
