/* XDR (RFC 4506): numbers and opaque bytes, written to and read from one buffer. */
#pragma once

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct out {
    uint8_t *at;
    uint8_t *end;
};

struct in {
    const uint8_t *at;
    const uint8_t *end;
};

/* Print one line and end the program with status 2, because further results would be wrong. */
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

static inline size_t padded(size_t length)
{
    return (length + 3) & ~(size_t)3;
}

static inline uint8_t *put_room(struct out *out, size_t length)
{
    uint8_t *at = out->at;

    if ((size_t)(out->end - at) < length)
        die("a request is larger than its buffer");
    out->at += length;
    return at;
}

static inline void put_u32(struct out *out, uint32_t value)
{
    value = htobe32(value);
    memcpy(put_room(out, 4), &value, 4);
}

static inline void put_u64(struct out *out, uint64_t value)
{
    value = htobe64(value);
    memcpy(put_room(out, 8), &value, 8);
}

/* Write bytes of a fixed length, with padding. */
static inline void put_fixed(struct out *out, const void *bytes, size_t length)
{
    uint8_t *at = put_room(out, padded(length));

    memset(at + length, 0, padded(length) - length);
    memcpy(at, bytes, length);
}

static inline void put_opaque(struct out *out, const void *bytes, size_t length)
{
    put_u32(out, (uint32_t)length);
    put_fixed(out, bytes, length);
}

static inline void put_string(struct out *out, const char *text)
{
    put_opaque(out, text, strlen(text));
}

static inline const uint8_t *get_fixed(struct in *in, size_t length)
{
    const uint8_t *at = in->at;

    if ((size_t)(in->end - at) < padded(length))
        die("a reply is cut short");
    in->at += padded(length);
    return at;
}

static inline uint32_t get_u32(struct in *in)
{
    uint32_t value;

    memcpy(&value, get_fixed(in, 4), 4);
    return be32toh(value);
}

static inline uint64_t get_u64(struct in *in)
{
    uint64_t value;

    memcpy(&value, get_fixed(in, 8), 8);
    return be64toh(value);
}

static inline const uint8_t *get_opaque(struct in *in, size_t *length)
{
    *length = get_u32(in);
    return get_fixed(in, *length);
}
