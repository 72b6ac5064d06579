/* Operations on the bytes of a regular file. Each call is a whole operation on its data file. */
#ifndef SPILLWAY_BYTES_H
#define SPILLWAY_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "inode.h"

/* Each returns 0 or an errno: EAGAIN while the call needs the whole file and the file is absent.
 * Amounts are in bytes. */

/* EINPROGRESS: the bytes are wanted from the bucket (cold.h). */
int spw_read(struct spw_inode *inode, const struct iovec *iov, int count, uint64_t offset,
	     size_t *amount, bool *eof);

int spw_write(struct spw_inode *inode, const struct iovec *iov, int count, uint64_t offset,
	      bool stable, size_t *amount);
int spw_truncate(struct spw_inode *inode, uint64_t size);
int spw_commit(struct spw_inode *inode);
int spw_seek(struct spw_inode *inode, uint64_t offset, int whence, uint64_t *found);
int spw_allocate(struct spw_inode *inode, uint64_t offset, uint64_t length, bool allocate);

#endif
