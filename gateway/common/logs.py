"""Formats of log lines: text for people, or JSON for programs (``gateway.log_format``).

A line that a request caused has the request's id, also in a job that the request began. The NFS
server's own log is not written here.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from gateway.common import clock

HUMAN = "human"
JSON = "json"
FORMS = (HUMAN, JSON)

_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ")
"""The time with which the lines of ``HumanFormatter`` begin."""

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The id of the request that this thread or task works for."""


class HumanFormatter(logging.Formatter):
    """Lines for people."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(request)s%(message)s")

    def format(self, record: logging.LogRecord) -> str:
        id = request_id.get()
        record.request = "" if id is None else f"request={id} "
        return super().format(record)


class Json(logging.Formatter):
    """Lines for programs: a JSON object each.

    Args:
        process: its name.
    """

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _moment(record.created),
            "process": self._process,
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        if (id := request_id.get()) is not None:
            line["request_id"] = id
        line |= getattr(record, "facts", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def install(form: str, process: str) -> None:
    """Have all loggers of this process write lines of a form.

    Args:
        form: as configured.
        process: its name.
    """
    for handler in logging.getLogger().handlers:
        handler.setFormatter(Json(process) if form == JSON else HumanFormatter())


@contextmanager
def of_request(id: str | None) -> Iterator[None]:
    """Give the lines of this thread the id of a request, or none, for a while."""
    before = request_id.set(id)
    try:
        yield
    finally:
        request_id.reset(before)


def event(log: logging.Logger, level: int, **facts: Any) -> None:
    """Log an event that is all facts: ``name=value`` for people, members for programs."""
    if log.isEnabledFor(level):
        text = " ".join(f"{name}={_word(value)}" for name, value in facts.items())
        log.log(level, "%s", text, extra={"facts": facts})


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _word(value: Any) -> str:
    text = str(value)
    return repr(text) if " " in text else text


class Output:
    """What ``spillway up`` prints: its own lines, and those of its processes.

    Those that systemd keeps have its time already.

    Args:
        form: as configured.
        has_times: whether lines for people begin with the time.
    """

    def __init__(self, form: str = HUMAN, *, has_times: bool = False) -> None:
        self._form = form
        self._has_times = has_times

    def say(self, who: str, text: str) -> None:
        """Print one line. When the reader is gone, supervision continues without output.

        Args:
            who: the process that says it.
        """
        line = self._for_people(who, text) if self._form == HUMAN else _object(who, text)
        try:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
        except OSError:
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def _for_people(self, who: str, text: str) -> str:
        if not self._has_times:
            return f"{who}: {text}"
        if match := _TIME.match(text):
            return f"{match[0]}{who}: {text[match.end() :]}"
        moment = datetime.fromtimestamp(clock.now_ns() / clock.NS).astimezone()
        return f"{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03} {who}: {text}"


def _object(who: str, text: str) -> str:
    """Return a line as a JSON object. A line of a process that is one already stays as it is."""
    if text.startswith('{"time": ') and text.endswith("}"):
        return text
    return json.dumps({"time": _moment(clock.now_ns() / clock.NS), "process": who, "message": text})
