"""Plans the transitions that retention ordered: copies of objects onto themselves, into another
storage class."""

from __future__ import annotations

from functools import partial

from gateway.drain.context import Context
from gateway.drain.job import Batch, Job, JobId, Lane, Page, Work, run_alone
from gateway.drain.tidy import transition
from gateway.drain.tidy.move import BATCH_BYTES, MOVES_AT_ONCE, SMALL_BYTES
from gateway.drain.tidy.transition import Ordered

PAGE = 512


def plan(context: Context, after: int | str | None) -> Page:
    """Plan the next transitions, by inode: the files of a checkpoint were made together."""
    batch = Batch(partial(transition.run_many, context), MOVES_AT_ONCE, BATCH_BYTES)
    with context.reading() as view:
        rows = view.session.all(transition.NEXT, after=after or 0, most=PAGE)
    jobs = []
    for *cells, stored_key, size in rows:
        one = Ordered(*cells)
        if one.until_ns is not None and not transition.is_over(context, one):
            continue
        claims = {one.ino, one.key, stored_key} - {None}
        job = Job(
            JobId(Work.TRANSITION, one.ino, one.key or stored_key or ""),
            Lane.COPY,
            frozenset(claims),
            partial(run_alone, batch, one),
            batch=batch if (size or 0) <= SMALL_BYTES else None,
            item=one,
            size=size or 0,
        )
        jobs.append(job)
    return Page(jobs, rows[-1][0] if len(rows) == PAGE else None)
