/* ONC RPC (RFC 5531) over one TCP connection, with AUTH_SYS. Large payloads are not copied. */
#pragma once

#include "wire.h"

struct rpc {
    int fd;
    bool survives; /* a lost connection sets lost; otherwise it ends the program */
    bool lost;     /* until the next rpc_connect: nothing is sent or received */
    uint32_t calls;
    uint8_t *buffer;
    size_t begin;
    size_t end;
};

/* The user id and the group id of all calls; 0: root. */
extern uint32_t rpc_user;

/* Bytes before a call's arguments, the record marker included. */
#define RPC_HEAD_BYTES 72
/* The largest record that is accepted: a READ of 8 MiB and its head. */
#define RPC_RECORD_BYTES ((8u << 20) + 4096)

void rpc_connect(struct rpc *rpc, const char *host, const char *port);
void rpc_close(struct rpc *rpc);
/* Write the head of a call. rpc_send fills in the record marker and the xid. */
void rpc_begin(struct out *out, uint32_t program, uint32_t version, uint32_t procedure);
/* Send a call in up to three parts. Its reply carries the tag (0..255). */
void rpc_send(struct rpc *rpc, uint8_t tag, const struct out parts[3]);
/* Wait for the next reply and return its tag. The reply is valid until the next call of this
 * function. It is empty if the connection is lost. */
uint8_t rpc_receive(struct rpc *rpc, struct in *reply);
/* Return whether a reply has arrived, or begins within timeout_ms milliseconds (-1: no limit). */
bool rpc_ready(struct rpc *rpc, int timeout_ms);
