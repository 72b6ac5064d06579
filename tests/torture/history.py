"""Replays a writer's log to find which names and contents may be there after its answers.

A request is a line ``<step> <seconds> <verb> <path> …``. Later lines of the same step say how the
request ended (``ok …``, ``lost``: no answer came, ``expired``: not done, ``failed``) and what the
writer saw afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.torture.file import UNIT_BYTES, File, Impossible, Runs

Entries = dict[str, File | None]
"""Files by path; a directory is None."""

OUTCOMES = frozenset({"ok", "lost", "see", "failed", "expired", "back"})
"""The first words of lines that are no requests."""
CONTEXT_LINES = 14


class Line(NamedTuple):
    step: int
    seconds: float
    words: list[str]


class Contradiction(AssertionError):
    """No correct server can have caused this log; the message has the lines before the place."""


def runs_of(words: Sequence[str]) -> Runs:
    """Return the content that the log describes with words ``<number>*<units>``."""
    for word in words:
        number, _, units = word.partition("*")
        yield -1 if number == "bad" else int(number), int(units) * UNIT_BYTES


def _file(entries: Entries, path: str) -> File:
    file = entries.get(path)
    if file is None:
        raise Impossible(f"{path} is no file that is known")
    return file


def _absent(entries: Entries, path: str) -> None:
    if path in entries:
        raise Impossible(f"{path} is there already")


def _below(entries: Entries, path: str) -> list[str]:
    return [name for name in entries if name.startswith(path + "/")]


def _rename(entries: Entries, path: str, to: str) -> None:
    if path not in entries:
        raise Impossible(f"{path} is not there")
    if _below(entries, to):
        raise Impossible(f"{to} is not empty")
    for name in _below(entries, path):
        entries[to + name.removeprefix(path)] = entries.pop(name)
    entries[to] = entries.pop(path)


def _remove(entries: Entries, path: str) -> None:
    if path not in entries:
        raise Impossible(f"{path} is not there")
    if _below(entries, path):
        raise Impossible(f"{path} is not empty")
    del entries[path]


def _make(entries: Entries, path: str) -> None:
    _absent(entries, path)
    entries[path] = None


def _create(entries: Entries, path: str) -> None:
    _absent(entries, path)
    entries[path] = File()


def _replace(entries: Entries, path: str) -> None:
    if path in entries:
        _file(entries, path).truncate(0)
    else:
        entries[path] = File()


NAMES: dict[str, Callable[..., None]] = {
    "create": _create,
    "replace": _replace,
    "rename": _rename,
    "remove": _remove,
    "mkdir": _make,
}
"""The changes of names. Without an answer, such a change was made whole or not at all."""


def answered(entries: Entries, request: Sequence[str], answer: Sequence[str]) -> None:
    """Apply a request that was answered. Raises Impossible if the answer contradicts the state."""
    verb, path, *values = request
    if verb in NAMES:
        NAMES[verb](entries, path, *values)
        return
    if verb == "close":
        return
    file = _file(entries, path)
    if verb == "stat":
        file.require_size(int(answer[0]))
    elif verb == "write":
        offset, length, number = map(int, values[:3])
        if int(answer[0]) != length:
            raise Impossible(f"a WRITE of {answer[0]} bytes instead of {length}")
        if values[3] == "stable":
            file.write_stable(offset, offset + length, number)
        else:
            file.write_unstable(offset, offset + length, number, answer[1])
    elif verb == "commit":
        file.commit(answer[0])
    elif verb == "truncate":
        file.truncate(int(values[0]))
    elif verb == "read":
        file.require_content(int(answer[0]), runs_of(answer[1:]))


def unanswered(entries: Entries, request: Sequence[str]) -> None:
    """Apply a request without an answer to the bytes of a file: it may have been done or not."""
    verb, path, *values = request
    file = entries.get(path)
    if file is None:
        return
    if verb == "write":
        offset, length, number = map(int, values[:3])
        file.write_unanswered(offset, offset + length, number)
    elif verb == "truncate":
        file.truncate_unanswered(int(values[0]))
    elif verb == "replace":
        file.truncate_unanswered(0)


def seen(entries: Entries, words: Sequence[str]) -> None:
    """Compare the state with the answer of a LOOKUP. Raises Impossible."""
    path, kind, *size = words
    if kind == "absent":
        if path in entries:
            raise Impossible(f"{path} is lost")
    elif path not in entries:
        raise Impossible(f"{path} is there again")
    elif kind == "file":
        _file(entries, path).require_size(int(size[0]))
    elif entries[path] is not None:
        raise Impossible(f"{path} has become a directory")


class History:
    """The states of one writer's files that its log allows.

    Raises Contradiction.

    Args:
        log: its path.
    """

    def __init__(self, log: Path) -> None:
        self.states: list[Entries] = [{}]
        """The possible states. There are two after a change of names without an answer."""
        self.acknowledged = 0
        self.unanswered = 0
        self.expired = 0
        self._log = log
        self._lines = [
            Line(int(step), float(seconds), words)
            for step, seconds, *words in map(str.split, log.read_text().splitlines())
        ]
        self._replay()

    def _replay(self) -> None:
        request: list[str] = []
        unfinished = False
        """Whether the lines so far do not say how the request ended."""
        for index, line in enumerate(self._lines):
            verb = line.words[0]
            if verb not in OUTCOMES:
                request, unfinished = line.words, True
                continue
            if verb in ("ok", "lost", "expired"):
                unfinished = False
            try:
                self._told(request, line.words)
            except Impossible as error:
                raise Contradiction(f"{error}\n{self._around(index)}") from None
        if unfinished:
            self._lost(request)

    def _told(self, request: list[str], words: list[str]) -> None:
        outcome, *values = words
        if outcome == "ok":
            self._keep(partial(answered, request=request, answer=values))
            self.acknowledged += 1
        elif outcome == "lost":
            self._lost(request)
        elif outcome == "see":
            self._keep(partial(seen, words=values))
        elif outcome == "failed":
            raise Impossible(f"it was answered NFS4ERR {values[0]}")
        elif outcome == "expired":
            self.expired += 1

    def _keep(self, check: Callable[[Entries], None]) -> None:
        """Drop the states that contradict. Raises the first contradiction if no state is left."""
        kept: list[Entries] = []
        reason: Impossible | None = None
        for entries in self.states:
            try:
                check(entries)
            except Impossible as error:
                reason = reason or error
            else:
                kept.append(entries)
        if reason is not None and not kept:
            raise reason
        self.states = kept

    def _lost(self, request: list[str]) -> None:
        self.unanswered += 1
        verb, path, *_ = request
        if verb in NAMES and not (verb == "replace" and path in self.states[0]):
            for before in list(self.states):
                after = {name: file and file.copy() for name, file in before.items()}
                try:
                    NAMES[verb](after, *request[1:])
                except Impossible:
                    continue
                self.states.append(after)
        else:
            for entries in self.states:
                unanswered(entries, request)

    def _around(self, index: int) -> str:
        chosen = self._lines[max(0, index - CONTEXT_LINES) : index + 1]
        lines = [f"{line.step} {line.seconds:.6f} {' '.join(line.words)[:300]}" for line in chosen]
        return "\n".join([f"{self._log.name}, to line {index + 1}:", *lines])

    def about(self, path: str) -> str:
        """Return the last lines of the log that name a path."""
        found = [
            f"{line.step} {line.seconds:.6f} {' '.join(line.words)[:300]}"
            for line in self._lines
            if path in line.words
        ]
        return "\n".join([f"{self._log.name}, of {path}:", *found[-CONTEXT_LINES:]])
