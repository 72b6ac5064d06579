"""Long work of a gateway on another machine: a job, which continues there whatever becomes of the
command that began it."""

from __future__ import annotations

import time
from typing import Any, TypeVar

from gateway import clock
from gateway.cli.api import Api, Call, Unreachable
from gateway.control.jobs import Job
from gateway.control.progress import Progress, Tell
from gateway.errors import NotPossible, UserError
from gateway.serialize import Model, from_json
from gateway.text import shown

M = TypeVar("M", bound=Model)

POLL_SECONDS = 0.2
POLL_SECONDS_MAX = 2.0
QUIET_SECONDS = 1.0
"""Nothing is told of a job that ends within this time."""
ABSENT_SECONDS = 60.0
"""The time that the admin API may be away: the gateway restarts it, and its jobs begin again."""

IN_BYTES = ("warm", "wait")
"""The kinds of jobs whose progress is counted in bytes."""

JOB = Call("GET", "/jobs/{id}", Job)
CANCEL_JOB = Call("POST", "/jobs/{id}/cancel", Job)


class Late(NotPossible):
    """The time is over, and the job was cancelled. The message says how far it was."""


def follow(
    api: Api, job: Job, progress: Tell, *, timeout_seconds: float | None = None
) -> dict[str, Any]:
    """Wait for the end of a job.

    Args:
        job: as the call that began it answered.
        progress: told now and then how far it is.
        timeout_seconds: after which the job is cancelled.

    Returns:
        Its result.

    Raises:
        Late: the time is over.
        NotPossible: it failed, or another person cancelled it.
        UserError: it failed, or the gateway stays away.
        KeyboardInterrupt: with a message that says how to end the job.
    """
    pause = POLL_SECONDS
    seen = began = clock.monotonic_seconds()
    try:
        while job.ended_ns is None:
            now = clock.monotonic_seconds()
            if timeout_seconds is not None and now - began >= timeout_seconds:
                _cancel(api, job)
            if (job.text or job.total) and now - began >= QUIET_SECONDS:
                progress(Progress(job.done, job.total, job.text, job.kind in IN_BYTES))
            time.sleep(pause)
            pause = min(POLL_SECONDS_MAX, 1.5 * pause)
            try:
                job = api.ask(JOB, job.id)
                seen = clock.monotonic_seconds()
            except Unreachable:
                if clock.monotonic_seconds() - seen > ABSENT_SECONDS:
                    raise
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"the gateway continues with it; to end it: spillway jobs cancel {job.id}"
        ) from None
    return _result(job)


def outcome(api: Api, model: type[M], job: Job, progress: Tell) -> M:
    """Wait for the end of a job, whose result is a model. Args and errors: as of ``follow``."""
    try:
        return from_json(model, follow(api, job, progress))
    except KeyError as exc:
        raise api.strange(f"its answer has no {exc}") from None


def _cancel(api: Api, job: Job) -> None:
    """End a job that is late. Raises Late, unless it has ended in this moment."""
    try:
        api.tell(CANCEL_JOB, job.id)
    except NotPossible:
        return
    raise Late(shown(job.text) or "it was not looked at yet")


def _result(job: Job) -> dict[str, Any]:
    if job.state == "done":
        return job.result or {}
    if job.state == "failed":
        problem = job.problem or {}
        detail = shown(str(problem.get("detail")))
        if problem.get("status") in (404, 409, 507):
            raise NotPossible(detail)
        raise UserError(detail)
    raise NotPossible(f"the job {job.id} is {job.state}: {shown(job.text)}")
