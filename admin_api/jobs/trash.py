"""The job that removes checkpoints of the trash for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from admin_api.access.principal import Principal
from admin_api.calls import Call
from admin_api.jobs.kinds import Kind, Work
from admin_api.jobs.rows import Row
from admin_api.jobs.runner import Runner
from gateway.control import trash as control
from gateway.serialize import to_json
from gateway.trash.trash import Trash

EMPTY = "empty"


def empty(
    runner: Runner, who: Principal, call: Call, ids: Sequence[str] | None, until_ns: int
) -> Row:
    """Begin the job. Returns it. Parameters: ids and until_ns, of ``control.trash.removable``.
    Raises Problem when too many jobs wait."""
    arguments = {"ids": None if ids is None else list(ids), "until_ns": until_ns}
    return runner.submit(EMPTY, arguments, who, call.request_id)


def _empty(work: Work) -> dict[str, Any]:
    trash = Trash(work.settings, work.database)
    entries = control.removable(trash, work.arguments["ids"], work.arguments["until_ns"])
    total = len(entries)

    def told(count: int, names: int) -> None:
        more = f", {names:,} names of the next one" if names else ""
        work.progress(count, total, f"{count:,} of {total:,} checkpoints are done{more}")

    failures = control.remove(trash, entries, told, by=work.who)
    removed = total - len(failures)
    work.progress(total, total, f"{removed:,} of {total:,} checkpoints removed for good")
    made: dict[str, Any] = to_json(control.Emptied(removed, failures))
    return made


# What was removed before a restart is not found again.
KINDS = (Kind(EMPTY, _empty),)
