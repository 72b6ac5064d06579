"""Plans of the work beside uploads (survey.py) and moves (renames.py), page by page.

A plan is a hint: every job checks again, under its claims, before it acts.
"""

from __future__ import annotations

from functools import partial

from gateway.drain import statements as own
from gateway.drain.context import Context, DrainView
from gateway.drain.job import Batch, DrainJob, JobId, JobPage, Lane, WorkKind, run_alone
from gateway.drain.paths import object_at, objects_above, objects_at
from gateway.drain.rows import Intent
from gateway.drain.tidy import garbage, indeterminate, move, transition
from gateway.objectstore.deletions import DELETE_MAX

DELETIONS_PAGE = DELETE_MAX
TRANSITIONS_PAGE = 512


def settlements(context: Context, _after: int | str | None) -> JobPage:
    """Plan the clean-up after uploads that were interrupted."""
    with context.reading() as view:
        rows = [Intent(*row) for row in view.session.all(own.UPLOADS)]
        left = [intent for intent in rows if not garbage.is_settled(view, intent)]
    return JobPage(
        [
            DrainJob(
                JobId(WorkKind.CLEAN_UP, intent.ino, intent.key),
                Lane.CHORE,
                frozenset((intent.ino, intent.key)),
                partial(garbage.settle, context, intent),
            )
            for intent in left
        ],
        None,
    )


def indeterminate_writes(
    waits: indeterminate.IndeterminateWaits, context: Context, _after: int | str | None
) -> JobPage:
    """Plan looks at keys where something may have arrived that no row names."""
    with context.reading() as view:
        due = waits.due(view)
    jobs = [
        DrainJob(
            JobId(WorkKind.CLEAN_UP, 0, row.key),
            Lane.CHORE,
            frozenset((row.key,)),
            partial(indeterminate.look, context, row, is_over),
        )
        for row, is_over in due
    ]
    return JobPage(jobs, None)


def deletions(context: Context, after: int | str | None) -> JobPage:
    """Plan the deletions of objects whose files are gone."""
    batch = Batch(partial(garbage.delete_many, context), DELETE_MAX, DELETE_MAX)
    with context.reading() as view:
        rows = view.session.all(own.TOMBSTONES, after=after or "", most=DELETIONS_PAGE)
        keys = [row[0] for row in rows]
        due = garbage.due(view, keys, objects_at(view.session, keys))
    jobs = [
        DrainJob(
            JobId(WorkKind.DELETE, 0, key),
            Lane.CHORE,
            frozenset((key,)),
            partial(run_alone, batch, key),
            batch=batch,
            item=key,
            size=1,
        )
        for key in due
    ]
    return JobPage(jobs, keys[-1] if len(keys) == DELETIONS_PAGE else None)


def transitions(context: Context, after: int | str | None) -> JobPage:
    """Plan the copies into another storage class that retention ordered, by inode: the files of a
    checkpoint were made together."""
    batch = Batch(partial(transition.run_many, context), move.MOVES_AT_ONCE, move.BATCH_BYTES)
    with context.reading() as view:
        rows = view.session.all(transition.NEXT, after=after or 0, most=TRANSITIONS_PAGE)
    jobs = []
    for *cells, stored_key, size in rows:
        row = transition.Ordered(*cells)
        if row.until_ns is not None and not transition.is_over(context, row):
            continue
        jobs.append(
            DrainJob(
                JobId(WorkKind.TRANSITION, row.ino, row.key or stored_key or ""),
                Lane.COPY,
                frozenset({row.ino, row.key, stored_key} - {None}),
                partial(run_alone, batch, row),
                batch=batch if (size or 0) <= move.SMALL_BYTES else None,
                item=row,
                size=size or 0,
            )
        )
    return JobPage(jobs, rows[-1][0] if len(rows) == TRANSITIONS_PAGE else None)


def make_way(context: Context, view: DrainView, ino: int, key: str) -> DrainJob | None:
    """Return the move of another file's object off a key, or of any object off a key that it goes
    through. None: nothing is in the way."""
    occupant = object_at(view.session, key)
    if occupant is None or occupant.ino == ino:
        occupant = objects_above(view.session, context.prefix, [key]).get(key)
    if occupant is None:
        return None
    return move_job(moves(context), move.make_way(context, view, occupant))


def moves(context: Context) -> Batch:
    """Return the batch in which moves run together."""
    return Batch(partial(move.move_many, context), move.MOVES_AT_ONCE, move.BATCH_BYTES)


def move_job(batch: Batch, planned: move.Move) -> DrainJob:
    """Return the job of a move.

    Args:
        batch: batch with which the job runs if the object is small.
    """
    return DrainJob(
        JobId(WorkKind.COPY, planned.ino, planned.target),
        Lane.COPY,
        planned.claims,
        partial(run_alone, batch, planned),
        batch=batch if planned.size <= move.SMALL_BYTES else None,
        item=planned,
        size=planned.size,
    )
