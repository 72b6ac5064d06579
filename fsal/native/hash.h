/* The hash of a name. */
#ifndef SPILLWAY_HASH_H
#define SPILLWAY_HASH_H

#include <stdint.h>

/* Returns the FNV-1a hash. seed: what else to hash; 0 for the name alone. */
static inline uint64_t spw_hash(uint64_t seed, const char *name, uint32_t length)
{
	uint64_t value = 14695981039346656037u ^ seed;

	for (uint32_t i = 0; i < length; i++)
		value = (value ^ (unsigned char)name[i]) * 1099511628211u;
	return value;
}

#endif
