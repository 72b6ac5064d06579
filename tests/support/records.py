"""Records of checkpoints that became complete, as the catalogue makes them."""

from __future__ import annotations

from gateway.common import clock
from gateway.common.types import Extent
from gateway.config.settings import Settings
from tests.support.volumes import query

ROW = (
    "INSERT INTO checkpoint (ino, parent, path, run, step, rule, extent, state, files, size,"
    " dirty_files, dirty_size, complete_ns, durable_ns, evidence, grade)"
    " VALUES (:ino, 2, :path, :run, 1, 'test', :extent, :state, 1, 1, 0, 0, 1, 1, 'e', :grade)"
)


def record(
    settings: Settings,
    ino: int,
    run: bytes,
    completion: int | None,
    *,
    grade: str = "listed",
    is_durable: bool = True,
    extent: Extent = Extent.TREE,
    path: bytes = b"",
) -> None:
    """Record a checkpoint in the order in which it became complete. Its row of the catalogue gets
    the grade, and is made if there is none.

    Args:
        is_durable: whether the bucket had all of it.
        extent, path: those of a row that is made.
    """
    given: dict[str, object] = {"ino": ino, "grade": grade}
    if not query(
        settings, "UPDATE checkpoint SET grade = :grade WHERE ino = :ino RETURNING 1", **given
    ):
        state = "durable" if is_durable else "complete"
        query(settings, ROW, **given, run=run, path=path, extent=int(extent), state=state)
    given |= {"run": run, "completion": completion}
    given["durable_ns"] = clock.now_ns() if is_durable else None
    if query(
        settings,
        "UPDATE checkpoint_record SET run = :run, grade = :grade, completion = :completion,"
        " durable_ns = :durable_ns WHERE ino = :ino RETURNING 1",
        **given,
    ):
        return  # the catalogue has made it
    query(
        settings,
        "INSERT INTO checkpoint_record (ino, run, rule, step, extent, grade, completion,"
        " complete_ns, durable_ns, files, size, contents, shape)"
        " VALUES (:ino, :run, 'test', 1, :extent, :grade, :completion, 1, :durable_ns, 1, 1, 'c',"
        " 's')",
        **given,
        extent=int(extent),
    )
