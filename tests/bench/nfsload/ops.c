/* The operations of NFSv4.1 (RFC 8881): the arguments of each, and its results. */
#include "nfs4.h"

/* The attributes that Linux asks for after LOOKUP and in READDIR: type, change, size, fsid,
 * fileid … */
#define WORD0 (1u << 1 | 1u << 3 | 1u << 4 | 1u << 8 | 1u << 20)
/* … mode, numlinks, owner, group, rawdev, space used, times, fileid of a mounted-on directory. */
#define WORD1                                                                                      \
    (1u << 1 | 1u << 3 | 1u << 4 | 1u << 5 | 1u << 9 | 1u << 13 | 1u << 15 | 1u << 20 | 1u << 21 | \
     1u << 23)
#define MODE_WORD1 (1u << 1)
#define SIZE_WORD0 (1u << 4)

void op_plain(struct slot *slot, uint32_t operation)
{
    put_u32(&slot->out, operation);
    slot->operations++;
}

void op_putfh(struct slot *slot, const struct fh *fh)
{
    op_plain(slot, OP_PUTFH);
    put_opaque(&slot->out, fh->bytes, fh->length);
}

void op_lookup(struct slot *slot, const char *name)
{
    op_plain(slot, OP_LOOKUP);
    put_string(&slot->out, name);
}

static void put_attributes(struct slot *slot)
{
    put_u32(&slot->out, 2);
    put_u32(&slot->out, WORD0);
    put_u32(&slot->out, WORD1);
}

void op_getattr(struct slot *slot)
{
    op_plain(slot, OP_GETATTR);
    put_attributes(slot);
}

void op_access(struct slot *slot)
{
    op_plain(slot, OP_ACCESS);
    put_u32(&slot->out, 0x2d); /* READ, MODIFY, EXTEND, EXECUTE */
}

static void put_new_attributes(struct slot *slot, uint32_t mode, bool truncate)
{
    put_u32(&slot->out, 2);
    put_u32(&slot->out, truncate ? SIZE_WORD0 : 0);
    put_u32(&slot->out, MODE_WORD1);
    put_u32(&slot->out, truncate ? 12 : 4);
    if (truncate)
        put_u64(&slot->out, 0);
    put_u32(&slot->out, mode);
}

void op_open(struct client *client, struct slot *slot, const char *name, enum share share,
             enum open_how how, bool truncate)
{
    op_plain(slot, OP_OPEN);
    put_u32(&slot->out, 0); /* sequence: only NFSv4.0 uses it */
    put_u32(&slot->out, share);
    put_u32(&slot->out, 0); /* deny nothing */
    put_u64(&slot->out, client->clientid);
    put_string(&slot->out, "root");
    put_u32(&slot->out, how != OPEN_EXISTING);
    if (how != OPEN_EXISTING) {
        put_u32(&slot->out, how == OPEN_GUARDED);
        put_new_attributes(slot, 0644, truncate);
    }
    put_u32(&slot->out, 0); /* by name */
    put_string(&slot->out, name);
}

void op_close(struct slot *slot, const struct stateid *stateid)
{
    op_plain(slot, OP_CLOSE);
    put_u32(&slot->out, 0);
    put_fixed(&slot->out, stateid->bytes, sizeof stateid->bytes);
}

void op_write(struct slot *slot, const struct stateid *stateid, uint64_t offset,
              const struct stamp *stamp, const uint8_t *block, uint32_t length, enum stable stable)
{
    op_plain(slot, OP_WRITE);
    put_fixed(&slot->out, stateid->bytes, sizeof stateid->bytes);
    put_u64(&slot->out, offset);
    put_u32(&slot->out, stable);
    put_u32(&slot->out, length);
    put_fixed(&slot->out, stamp, sizeof *stamp);
    slot->parts[0] = (struct out){slot->head, slot->out.at};
    slot->parts[1] = (struct out){(uint8_t *)block + sizeof *stamp, (uint8_t *)block + length};
    slot->out = (struct out){slot->tail, slot->tail + sizeof slot->tail};
}

void op_read(struct slot *slot, const struct stateid *stateid, uint64_t offset, uint32_t length)
{
    op_plain(slot, OP_READ);
    put_fixed(&slot->out, stateid->bytes, sizeof stateid->bytes);
    put_u64(&slot->out, offset);
    put_u32(&slot->out, length);
}

void op_commit(struct slot *slot)
{
    op_plain(slot, OP_COMMIT);
    put_u64(&slot->out, 0);
    put_u32(&slot->out, 0); /* the whole file */
}

void op_setsize(struct slot *slot, const struct stateid *stateid, uint64_t size_bytes)
{
    op_plain(slot, OP_SETATTR);
    put_fixed(&slot->out, stateid->bytes, sizeof stateid->bytes);
    put_u32(&slot->out, 1);
    put_u32(&slot->out, SIZE_WORD0);
    put_u32(&slot->out, 8);
    put_u64(&slot->out, size_bytes);
}

void op_rename(struct slot *slot, const char *from, const char *to)
{
    op_plain(slot, OP_RENAME);
    put_string(&slot->out, from);
    put_string(&slot->out, to);
}

void op_remove(struct slot *slot, const char *name)
{
    op_plain(slot, OP_REMOVE);
    put_string(&slot->out, name);
}

void op_mkdir(struct slot *slot, const char *name)
{
    op_plain(slot, OP_CREATE);
    put_u32(&slot->out, 2); /* a directory */
    put_string(&slot->out, name);
    put_new_attributes(slot, 0755, false);
}

void op_readdir(struct slot *slot, uint64_t cookie, uint64_t verifier, uint32_t bytes)
{
    op_plain(slot, OP_READDIR);
    put_u64(&slot->out, cookie);
    put_u64(&slot->out, verifier);
    put_u32(&slot->out, bytes / 2);
    put_u32(&slot->out, bytes);
    put_attributes(slot);
}

void take(struct in *reply, uint32_t operation)
{
    uint32_t found = get_u32(reply), status = get_u32(reply);

    if (found != operation || status != NFS4_OK)
        die("the result of operation %u is of %u, status %u", operation, found, status);
}

void take_getfh(struct in *reply, struct fh *fh)
{
    const uint8_t *bytes;
    size_t length;

    take(reply, OP_GETFH);
    bytes = get_opaque(reply, &length);
    if (length > sizeof fh->bytes)
        die("a file handle of %zu bytes", length);
    fh->length = (uint32_t)length;
    memcpy(fh->bytes, bytes, length);
}

static void get_attributes(struct in *reply, struct attributes *attributes)
{
    uint32_t words = get_u32(reply), first = words ? get_u32(reply) : 0;
    struct in values;
    size_t length;

    for (uint32_t word = 1; word < words; word++)
        get_u32(reply);
    values.at = get_opaque(reply, &length);
    values.end = values.at + length;
    if ((first & 0x1a) != 0x1a)
        die("the server gave no type, change and size");
    attributes->type = get_u32(&values);
    attributes->change = get_u64(&values);
    attributes->size_bytes = get_u64(&values);
}

void take_getattr(struct in *reply, struct attributes *attributes)
{
    take(reply, OP_GETATTR);
    get_attributes(reply, attributes);
}

void take_open(struct in *reply, struct stateid *stateid)
{
    uint32_t delegation, words;

    take(reply, OP_OPEN);
    memcpy(stateid->bytes, get_fixed(reply, 16), 16);
    memset(stateid->bytes, 0, 4); /* the current stateid, also after further OPENs */
    (void)get_fixed(reply, 4 + 8 + 8 + 4); /* change of the directory, flags */
    for (words = get_u32(reply); words; words--)
        get_u32(reply);
    delegation = get_u32(reply);
    if (delegation == 3) { /* no delegation; the reason follows */
        uint32_t why = get_u32(reply);

        if (why == 1 || why == 2)
            get_u32(reply);
    } else if (delegation != 0) {
        die("the server gave a delegation");
    }
}

uint32_t take_write(struct in *reply, uint64_t *verifier)
{
    uint32_t count;

    take(reply, OP_WRITE);
    count = get_u32(reply);
    get_u32(reply); /* how stable */
    *verifier = get_u64(reply);
    return count;
}

uint64_t take_commit(struct in *reply)
{
    take(reply, OP_COMMIT);
    return get_u64(reply);
}

const uint8_t *take_read(struct in *reply, size_t *length, bool *eof)
{
    take(reply, OP_READ);
    *eof = get_u32(reply);
    return get_opaque(reply, length);
}

bool take_readdir(struct in *reply, uint64_t *cookie, uint64_t *verifier, entry_fn each,
                  void *context)
{
    take(reply, OP_READDIR);
    *verifier = get_u64(reply);
    while (get_u32(reply)) {
        struct attributes attributes;
        const uint8_t *name;
        size_t length;

        *cookie = get_u64(reply);
        name = get_opaque(reply, &length);
        get_attributes(reply, &attributes);
        each((const char *)name, length, &attributes, context);
    }
    return get_u32(reply);
}
