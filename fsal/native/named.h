/* Names that Ganesha adds to its cache when another client may have changed them already.
 *
 * After the plugin made a name or found it for an OPEN, Ganesha adds it to its names of the directory,
 * and holds no lock until then (mdcache_file.c, mdcache_open2; mdcache_handle.c, mdcache_link and
 * others). If another client replaces, moves or removes the name meanwhile, Ganesha keeps leading
 * clients to the old file, and what they write there is lost. Next, the same thread asks for the
 * attributes of the directory (mdcache_refresh_attrs_no_invalidate).
 *
 * At that time Ganesha holds locks that the upcall may need (mdcache_helpers.c, mdc_check_mapping).
 * So a thread that holds none makes the upcall. It runs while there is an export.
 */
#ifndef SPILLWAY_NAMED_H
#define SPILLWAY_NAMED_H

#include <stdint.h>

#include "ganesha.h"

/* Starts and ends the thread. Returns 0 or an errno. */
int spw_named_start(const struct fsal_up_vector *up);
void spw_named_stop(void);

/* Notes the name that this thread is about to answer, and the inode that has it. */
void spw_named(uint64_t directory, const char *name, uint64_t ino);

/* Has Ganesha forget the names of a directory if the last name that this thread answered there may
 * be another inode's by now. Call it when Ganesha asks for the directory's attributes. */
void spw_named_check(uint64_t directory, uint64_t generation);

#endif
