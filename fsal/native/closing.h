/* CLOSEs that wait, for the bucket or for an OPEN, and the compounds that they come in. */
#ifndef SPILLWAY_CLOSING_H
#define SPILLWAY_CLOSING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "inode.h"

struct COMPOUND4args;
struct gsh_buffdesc;

/* ---- closing.c ---- */

/* CLOSEs that are answered only when the bucket has the file.
 *
 * Ganesha answers CLOSE with "OK" whatever close2 returns, and after close2 the open state is gone.
 * So the CLOSE is held back earlier: the PUTFH before it, in the same compound, gets NFS4ERR_DELAY
 * (compound.c). No thread waits; the client sends the compound again. From its first try on, the
 * open counts as closed for the seal, or the drain could never upload the file. */

#define SPW_STATEID_BYTES 12u

/* The writing of one open state, and the tries to close it. */
struct spw_closing {
	struct spw_closing *next; /* in its chain, under the lock of closing.c, with what follows */
	struct spw_inode *inode;  /* NULL: in no chain */
	const char *stateid;      /* of the state, SPW_STATEID_BYTES */
	const volatile uint32_t *seqid; /* of the state */
	uint64_t began_ms; /* the time of the first try to close; 0: none */
	uint64_t tried_ms; /* of the last one */
	uint64_t ask_ms;   /* the namespace is not asked before */
	bool told;         /* the last answer was the error */
	atomic_bool writes; /* counts as a writer of the inode */
};

/* A CLOSE, or an OPEN_DOWNGRADE that gives up writing, as a client asked for it. */
struct spw_close {
	const char *stateid; /* SPW_STATEID_BYTES */
	uint32_t seqid;      /* 0: the newest */
	bool is_plain;       /* nothing before it in the compound changes the file */
	bool is_current;     /* it names no stateid, but the last one of the compound */
	bool is_opened;      /* the compound itself opens the file for writing */
};

/* Sets whether there are paths whose CLOSE waits at all. wait_ms: how long a CLOSE is answered with
 * "wait" before it is answered with an error; 0: without end. */
void spw_closing_start(bool is_wanted, uint32_t wait_ms);

/* Returns whether there are paths whose CLOSE waits. */
bool spw_closing_wanted(void);

/* Notes that a state writes. stateid, seqid: of the state, read until spw_closing_end. Returns
 * whether it counted as a writer before: the caller then ends the writer that it has just begun. */
bool spw_closing_begin(struct spw_closing *closing, struct spw_inode *inode, const char *stateid,
		       const volatile uint32_t *seqid);

/* Notes that a state writes no more. Returns whether it counted as a writer until now. */
bool spw_closing_end(struct spw_closing *closing);

/* Tries to close a file. Returns 0 if the CLOSE may be answered: the bucket has the file as it is,
 * or the path asks for no more than the local disk, or the open does not write. Returns EAGAIN
 * while it must wait, and while the namespace cannot say whether it must. Returns EIO when it has
 * waited for too long or the file is damaged, ENOTSUP if the same compound changes the file or does
 * not name the open. told: whether this is the first EIO of this open. */
int spw_closing_try(uint64_t ino, const struct spw_close *close, bool *told);

/* ---- opening.c ---- */

/* OPENs and CLOSEs of one open state, which Ganesha does not keep apart.
 *
 * Ganesha counts the seqid of a state up after an OPEN has let go of the state (nfs4_op_open.c:
 * open4_ex, then update_stateid), and a CLOSE compares its seqid before it takes the state
 * (nfs4_op_close.c). A CLOSE that the client sent before it had the answer of the OPEN could pass
 * between the two: it deleted the state, and the OPEN was answered with a stateid that is gone.
 * Linux took that for one that it had missed others before, and processes hung.
 *
 * So a CLOSE waits, before Ganesha looks at it, until the OPEN has its seqid: then it is refused as
 * old, and Linux asks again. From there on an OPEN of this state is answered NFS4ERR_DELAY. */

/* How long at most one waits for the other, which takes some microseconds, or fails. */
#ifndef SPW_OPENING_MS
#define SPW_OPENING_MS 1000u
#endif

/* What is under way with an open state. */
struct spw_opening {
	struct spw_opening *next; /* in its chain, under the lock of opening.c, with what follows */
	uint64_t ino;
	const char *stateid; /* of the state, SPW_STATEID_BYTES */
	const volatile uint32_t *seqid; /* of the state */
	uint32_t due_seqid;  /* that it has after the OPENs that are under way */
	uint64_t due_ms;     /* it is not waited for longer */
	uint64_t closing_ms; /* until then a CLOSE is under way */
};

/* Notes a state that an OPEN makes. stateid, seqid: read until spw_opening_end. */
void spw_opening_begin(struct spw_opening *opening, uint64_t ino, const char *stateid,
		       const volatile uint32_t *seqid);

/* Notes that an OPEN, or an OPEN_DOWNGRADE, changes a state that is there. Returns whether it may:
 * if not, it is to be sent again. */
bool spw_opening_again(struct spw_opening *opening, bool is_downgrade);

/* Notes that the OPEN failed and changed nothing. */
void spw_opening_failed(struct spw_opening *opening);

/* Notes that the state is closed. */
void spw_opening_end(struct spw_opening *opening);

/* Keeps further OPENs from a state, before Ganesha looks at a CLOSE, or an OPEN_DOWNGRADE, of it.
 * Waits for those that are under way. */
void spw_opening_close(uint64_t ino, const struct spw_close *close);

/* ---- compound.c ---- */

/* What else a client asks for in the compound that Ganesha works on. */

/* Returns the compound, or NULL if the request is of another protocol. */
const struct COMPOUND4args *spw_compound(void);

/* A place in a compound. All zero: its beginning. */
struct spw_compound_place {
	unsigned int next;  /* operation */
	bool is_ours;       /* the current file is that of the handle */
	bool is_changed;    /* an operation before it may change the file */
	bool is_opened;     /* an operation before it has a file open for writing */
};

/* Finds the next CLOSE, or OPEN_DOWNGRADE to reading, of the file that PUTFH names, and moves the
 * place behind it. Returns whether there is one. Call it only below an export's wire_to_host for
 * NFSv4: only PUTFH calls that (Protocols/NFS/nfs4_op_putfh.c, nfs4_mds_putfh). handle: what
 * wire_to_host was given. */
bool spw_compound_next_close(const struct gsh_buffdesc *handle, struct spw_compound_place *place,
			     struct spw_close *close);

#endif
