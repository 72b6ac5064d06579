/* Says who asks in the call that Ganesha makes. */
#ifndef SPILLWAY_CALLER_H
#define SPILLWAY_CALLER_H

#include <string.h>

#include "ganesha.h"

#include "client_mgr.h"

#include "clients.h"

/* Returns the address of a client as people write it: Ganesha listens with IPv6, where an address of
 * IPv4 has a prefix (RFC 4291 section 2.5.5.2). */
static inline const char *spw_address_of(const struct gsh_client *client)
{
	static const char mapped[] = "::ffff:";
	const char *address = client->hostaddr_str, *rest = address + sizeof(mapped) - 1;

	return strncmp(address, mapped, sizeof(mapped) - 1) == 0 && strchr(rest, '.') ? rest : address;
}

/* Returns the address of the client, or an empty one if none asks: the gateway itself does, or a
 * thread that has the call no more. */
static inline const char *spw_caller(void)
{
	return op_ctx != NULL && op_ctx->client != NULL ? spw_address_of(op_ctx->client) : "";
}

/* Returns the entry of the client, or NULL if none asks. */
static inline struct spw_client *spw_calling(void)
{
	return spw_client_of(spw_caller());
}

#endif
