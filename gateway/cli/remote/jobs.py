"""Long work: it is a job of the gateway, which continues there whatever becomes of this command."""

from __future__ import annotations

import sys
import time
from typing import Any

from gateway import clock
from gateway.cli.progress import Line, Transfer, bar
from gateway.cli.remote.client import Api, Unreachable
from gateway.errors import NotPossible, SpillwayError, UserError
from gateway.text import shown

POLL_SECONDS = 0.2
POLL_SECONDS_MAX = 2.0
QUIET_SECONDS = 1.0
"""Nothing is shown of a job that ends within this time."""
ABSENT_SECONDS = 60.0
"""The time that the admin API may be away: the gateway restarts it, and its jobs begin again."""

IN_BYTES = ("warm", "wait")
"""The kinds of jobs whose progress is counted in bytes."""

Job = dict[str, Any]


class Late(SpillwayError):
    """The time is over, and the job was cancelled. Parameters: how far it was."""


def begin(api: Api, path: str, body: Any) -> Job:
    """Begin a job. Returns it."""
    found: Job = api.call("POST", path, body).json()
    return found


def follow(
    api: Api, job: Job, *, quiet: bool, timeout_seconds: float | None = None
) -> dict[str, Any]:
    """Wait for the end of a job, and show how far it is. Returns its result.

    Raises Late, NotPossible if it failed, UserError if the gateway stays away.
    """
    line, progress, pause = Line(quiet), _Progress(), POLL_SECONDS
    seen = began = clock.monotonic_seconds()
    try:
        while job["ended_ns"] is None:
            now = clock.monotonic_seconds()
            if timeout_seconds is not None and now - began >= timeout_seconds:
                _cancel(api, job)
            text = progress.text(job)
            if text and now - began >= QUIET_SECONDS:
                line.show(text)
            time.sleep(pause)
            pause = min(POLL_SECONDS_MAX, 1.5 * pause)
            try:
                job = api.get(f"/jobs/{job['id']}")
                seen = clock.monotonic_seconds()
            except Unreachable:
                if clock.monotonic_seconds() - seen > ABSENT_SECONDS:
                    raise
    except KeyboardInterrupt:
        line.end()
        print(
            f"spillway: the gateway continues with it; to end it: spillway jobs cancel {job['id']}",
            file=sys.stderr,
        )
        raise
    finally:
        line.end()
    return _result(job)


class _Progress:
    """Shows how far a job is."""

    def __init__(self) -> None:
        self._transfer = Transfer()

    def text(self, job: Job) -> str:
        """Return one line: with a bar if it is known how much there is to do."""
        done, total, text = job["done"], job["total"], shown(job["text"])
        if not total:
            return text
        if job["kind"] not in IN_BYTES:
            return f"{bar(min(1.0, done / total))}  {text}"
        self._transfer.note(done)
        return self._transfer.told(total, text)


def _cancel(api: Api, job: Job) -> None:
    """End a job that is late. Raises Late, unless it has ended in this moment."""
    try:
        api.call("POST", f"/jobs/{job['id']}/cancel")
    except NotPossible:
        return
    raise Late(shown(job["text"]) or "it was not looked at yet")


def _result(job: Job) -> dict[str, Any]:
    if job["state"] == "done":
        result: dict[str, Any] = job["result"]
        return result
    if job["state"] == "failed":
        problem = job["problem"] or {}
        detail = shown(str(problem.get("detail")))
        if problem.get("status") in (404, 409, 507):
            raise NotPossible(detail)
        raise UserError(detail)
    raise NotPossible(f"the job {job['id']} is {job['state']}: {shown(job['text'])}")
