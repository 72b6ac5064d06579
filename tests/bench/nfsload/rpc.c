/* ONC RPC over TCP (RFC 5531): sends and receives records. */
#include "rpc.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CALL = 0, REPLY = 1, AUTH_NONE = 0, AUTH_SYS = 1 };

#define LAST_FRAGMENT 0x80000000u
/* The limit of reading ahead. With more, bytes of a large record would be moved in the buffer. */
#define AHEAD_BYTES (64u << 10)
#define BUFFER_BYTES (RPC_RECORD_BYTES + 2 * AHEAD_BYTES)

uint32_t rpc_user;

void die(const char *format, ...)
{
    va_list values;

    va_start(values, format);
    fputs("nfsload: ", stderr);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    va_end(values);
    _exit(2);
}

static void lose(struct rpc *rpc, const char *what, const char *why)
{
    if (!rpc->survives)
        die("%s: %s", what, why);
    rpc->lost = true;
}

void rpc_connect(struct rpc *rpc, const char *host, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    int error = getaddrinfo(host, port, &hints, &found), on = 1;

    if (error)
        die("%s: %s", host, gai_strerror(error));
    rpc->fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (rpc->fd < 0)
        die("no socket: %s", strerror(errno));
    rpc->lost = false;
    if (connect(rpc->fd, found->ai_addr, found->ai_addrlen))
        lose(rpc, "cannot connect", strerror(errno));
    freeaddrinfo(found);
    setsockopt(rpc->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (!rpc->buffer && !(rpc->buffer = malloc(BUFFER_BYTES)))
        die("out of memory");
    rpc->begin = rpc->end = 0;
}

void rpc_close(struct rpc *rpc)
{
    close(rpc->fd);
    rpc->fd = -1;
}

void rpc_begin(struct out *out, uint32_t program, uint32_t version, uint32_t procedure)
{
    put_u32(out, 0); /* record marker */
    put_u32(out, 0); /* xid */
    put_u32(out, CALL);
    put_u32(out, 2);
    put_u32(out, program);
    put_u32(out, version);
    put_u32(out, procedure);
    put_u32(out, AUTH_SYS);
    put_u32(out, 28);
    put_u32(out, 0); /* stamp */
    put_string(out, "nfsload");
    put_u32(out, rpc_user);
    put_u32(out, rpc_user); /* its group */
    put_u32(out, 0); /* no other groups */
    put_u32(out, AUTH_NONE);
    put_u32(out, 0);
}

void rpc_send(struct rpc *rpc, uint8_t tag, const struct out parts[3])
{
    struct iovec vector[3];
    struct out head = parts[0];
    size_t left = 0;
    int index = 0;

    for (int part = 0; part < 3; part++) {
        vector[part].iov_base = parts[part].at;
        vector[part].iov_len = (size_t)(parts[part].end - parts[part].at);
        left += vector[part].iov_len;
    }
    put_u32(&head, LAST_FRAGMENT | (uint32_t)(left - 4));
    put_u32(&head, rpc->calls++ << 8 | tag);
    while (left && !rpc->lost) {
        ssize_t sent = writev(rpc->fd, vector + index, 3 - index);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0) {
            lose(rpc, "the server closed the connection", strerror(errno));
            return;
        }
        left -= (size_t)sent;
        for (; index < 3 && (size_t)sent >= vector[index].iov_len; index++)
            sent -= (ssize_t)vector[index].iov_len;
        if (index < 3) {
            vector[index].iov_base = (uint8_t *)vector[index].iov_base + sent;
            vector[index].iov_len -= (size_t)sent;
        }
    }
}

/* Read until the buffer has at least this many bytes. False: the connection is lost. */
static bool fill(struct rpc *rpc, size_t wanted)
{
    while (rpc->end - rpc->begin < wanted) {
        size_t room = wanted - (rpc->end - rpc->begin);
        ssize_t got;

        if (room < AHEAD_BYTES && wanted <= AHEAD_BYTES)
            room = AHEAD_BYTES;
        if (rpc->begin == rpc->end || rpc->end + room > BUFFER_BYTES) {
            memmove(rpc->buffer, rpc->buffer + rpc->begin, rpc->end - rpc->begin);
            rpc->end -= rpc->begin;
            rpc->begin = 0;
        }
        got = recv(rpc->fd, rpc->buffer + rpc->end, room, room > AHEAD_BYTES ? MSG_WAITALL : 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            lose(rpc, "the server closed the connection", got ? strerror(errno) : "end of stream");
            return false;
        }
        rpc->end += (size_t)got;
    }
    return true;
}

static uint32_t peek_u32(const uint8_t *at)
{
    uint32_t value;

    memcpy(&value, at, 4);
    return be32toh(value);
}

uint8_t rpc_receive(struct rpc *rpc, struct in *reply)
{
    uint32_t length, xid;

    *reply = (struct in){0};
    if (rpc->lost || !fill(rpc, 4))
        return 0;
    length = peek_u32(rpc->buffer + rpc->begin);
    if (!(length & LAST_FRAGMENT) || (length &= ~LAST_FRAGMENT) > RPC_RECORD_BYTES)
        die("a reply in fragments, or larger than %u bytes", RPC_RECORD_BYTES);
    if (!fill(rpc, 4 + length))
        return 0;
    reply->at = rpc->buffer + rpc->begin + 4;
    reply->end = reply->at + length;
    rpc->begin += 4 + length;
    xid = get_u32(reply);
    if (get_u32(reply) != REPLY || get_u32(reply) != 0)
        die("the server denied a call");
    get_u32(reply);
    (void)get_fixed(reply, get_u32(reply));
    if (get_u32(reply) != 0)
        die("the server did not accept a call");
    return (uint8_t)xid;
}

bool rpc_ready(struct rpc *rpc, int timeout_ms)
{
    struct pollfd waited = {.fd = rpc->fd, .events = POLLIN};

    return rpc->begin != rpc->end || poll(&waited, 1, timeout_ms) > 0;
}
