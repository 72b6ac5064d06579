/* Calls that send one compound and wait for its answer: look-up, open, close, rename and others. */
#include "nfs4.h"

uint32_t call_lookup(struct client *client, const struct fh *directory, const char *name,
                     struct fh *fh, struct attributes *attributes)
{
    struct slot *slot = client->slot;
    struct in reply;
    uint32_t status;

    nfs_begin(client, slot, false);
    if (directory)
        op_putfh(slot, directory);
    else
        op_plain(slot, OP_PUTROOTFH);
    op_lookup(slot, name);
    op_plain(slot, OP_GETFH);
    op_getattr(slot);
    status = nfs_call(client, &reply);
    if (status == NFS4_OK) {
        take(&reply, directory ? OP_PUTFH : OP_PUTROOTFH);
        take(&reply, OP_LOOKUP);
        take_getfh(&reply, fh);
        take_getattr(&reply, attributes);
    }
    return status;
}

uint32_t call_open(struct client *client, const struct fh *directory, const char *name,
                   enum share share, enum open_how how, bool truncate, struct fh *fh,
                   struct stateid *stateid)
{
    struct slot *slot = client->slot;
    struct in reply;
    uint32_t status;

    nfs_begin(client, slot, true);
    op_putfh(slot, directory);
    op_open(client, slot, name, share, how, truncate);
    op_plain(slot, OP_GETFH);
    op_access(slot);
    op_getattr(slot);
    status = nfs_call(client, &reply);
    if (status == NFS4_OK) {
        take(&reply, OP_PUTFH);
        take_open(&reply, stateid);
        take_getfh(&reply, fh);
    }
    return status;
}

uint32_t call_close(struct client *client, const struct fh *fh, const struct stateid *stateid)
{
    struct slot *slot = client->slot;
    struct in reply;

    nfs_begin(client, slot, true);
    op_putfh(slot, fh);
    op_close(slot, stateid);
    return nfs_call(client, &reply);
}

uint32_t call_commit(struct client *client, const struct fh *fh, uint64_t *verifier)
{
    struct slot *slot = client->slot;
    struct in reply;
    uint32_t status;

    nfs_begin(client, slot, false);
    op_putfh(slot, fh);
    op_commit(slot);
    status = nfs_call(client, &reply);
    if (status == NFS4_OK) {
        take(&reply, OP_PUTFH);
        *verifier = take_commit(&reply);
    }
    return status;
}

uint32_t call_rename(struct client *client, const struct fh *directory, const char *from,
                     const char *to)
{
    struct slot *slot = client->slot;
    struct in reply;

    nfs_begin(client, slot, true);
    op_putfh(slot, directory);
    op_plain(slot, OP_SAVEFH);
    op_rename(slot, from, to);
    return nfs_call(client, &reply);
}

uint32_t call_remove(struct client *client, const struct fh *directory, const char *name)
{
    struct slot *slot = client->slot;
    struct in reply;

    nfs_begin(client, slot, true);
    op_putfh(slot, directory);
    op_remove(slot, name);
    return nfs_call(client, &reply);
}

uint32_t call_mkdir(struct client *client, const struct fh *directory, const char *name)
{
    struct slot *slot = client->slot;
    struct in reply;

    nfs_begin(client, slot, true);
    op_putfh(slot, directory);
    op_mkdir(slot, name);
    return nfs_call(client, &reply);
}
