/* Writers of an inode. For the first one the namespace opens the inode for writing, and the last
 * one leaves it to the sealer. */
#ifndef SPILLWAY_WRITER_H
#define SPILLWAY_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "bridge.h"
#include "inode.h"

/* Begins a writer. The first one tells the namespace, durably, before it returns 0. Returns 0 or an
 * errno: EAGAIN for an absent file, whose bytes are wanted then. created: attributes of a file that
 * the namespace just made open for writing, or NULL. They are not believed when something newer was
 * seen of it; else see spw_expect_no_file. */
int spw_writer_begin(struct spw_inode *inode, const struct spw_attr *created);

/* Begins a writer that empties the file before it writes. An absent file is empty then, in a data
 * file of a new epoch. For any other file the caller truncates. Returns 0 or an errno. */
int spw_writer_begin_emptied(struct spw_inode *inode);

/* Does spw_expect_no_file for a file that the namespace made, not open for writing, with these
 * attributes. Does nothing when something newer was seen of it. Returns 0 or an errno. */
int spw_made_closed(struct spw_inode *inode, const struct spw_attr *created);

/* Ends a writer. After the last one the sealer puts the bytes on stable storage and seals the file,
 * later, with all files that wait, in one transaction. No client was promised the seal: after a
 * crash the next start seals. */
void spw_writer_end(struct spw_inode *inode);

/* Keeps a file that is open for writing from being sealed until spw_writer_end. Returns whether it
 * is open for writing; if not, the call does nothing. */
bool spw_keep_open(struct spw_inode *inode);

/* Sets the mtime of the data file, on stable storage, after a client has set the mtime. It does so
 * only if the file is open for writing, because fstat is the truth then. A seal that began before
 * would put the old mtime back: see spw_keep_open. Returns 0 or an errno. */
int spw_touch(struct spw_inode *inode, int64_t mtime_ns);

#endif
