/* Which granules a range of a file has. A granule is the unit in which bytes of an absent file are
 * wanted and present. Sizes, offsets and lengths are in bytes.
 */
#ifndef SPILLWAY_GRANULE_H
#define SPILLWAY_GRANULE_H

#include <stdbool.h>
#include <stdint.h>

#define SPW_GRANULE_BYTES (UINT64_C(4) << 20)

static inline uint64_t spw_granules(uint64_t size)
{
	return size / SPW_GRANULE_BYTES + (size % SPW_GRANULE_BYTES != 0);
}

static inline bool spw_is_in_file(uint64_t size, uint64_t offset, uint64_t length)
{
	return length > 0 && offset < size;
}

/* Returns the last granule of a range that begins before the end of the file. */
static inline uint64_t spw_granule_last(uint64_t size, uint64_t offset, uint64_t length)
{
	uint64_t left = size - offset;

	return (offset + (length < left ? length : left) - 1) / SPW_GRANULE_BYTES;
}

/* Returns whether a range is whole granules, of which the last one of the file may be shorter. */
static inline bool spw_is_granules(uint64_t size, uint64_t offset, uint64_t length)
{
	return spw_is_in_file(size, offset, length) && length <= size - offset &&
	       offset % SPW_GRANULE_BYTES == 0 &&
	       ((offset + length) % SPW_GRANULE_BYTES == 0 || offset + length == size);
}

#endif
