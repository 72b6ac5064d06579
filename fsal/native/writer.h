/* Writers of an inode: the first one has the namespace open it, the last one leaves it to the
 * sealer. */
#ifndef SPILLWAY_WRITER_H
#define SPILLWAY_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "bridge.h"
#include "inode.h"

/* A writer comes: the first one tells the namespace, durably, before it returns 0.
 * created: the namespace made the file open for writing, with these attributes; not believed when
 * something newer was seen of it; when they are believed, see spw_expect_no_file. */
int spw_writer_begin(struct spw_inode *inode, const struct spw_attr *created);

/* The namespace made the file, not open for writing, with these attributes: see
 * spw_expect_no_file. Nothing is done when something newer was seen of it. Returns 0 or an errno. */
int spw_made_closed(struct spw_inode *inode, const struct spw_attr *created);

/* A writer goes: after the last one the bytes are put on stable storage and the file is sealed,
 * later, by a thread that seals all that wait in one transaction. No client was promised the seal: a
 * crash before it makes the next start seal. */
void spw_writer_end(struct spw_inode *inode);

/* Keeps a file that is open for writing from being sealed until spw_writer_end. Whether it is open:
 * nothing is kept otherwise. */
bool spw_keep_open(struct spw_inode *inode);

/* A client has set the mtime: sets the data file's, on stable storage, if the file is open for
 * writing (fstat is the truth then). A seal that began before would put the old one back: see
 * spw_keep_open. Returns 0 or an errno. */
int spw_touch(struct spw_inode *inode, int64_t mtime_ns);

#endif
