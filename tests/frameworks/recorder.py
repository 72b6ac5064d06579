"""Records the system calls with which a save by a real library changes files: all of them, in their
order, with their bytes.

``strace`` follows all processes and threads. Its lines are read without guessing: a call on a file
below the directory that is not known here is an error, and so is a recording whose replay would not
end in the same files as the save itself.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.frameworks.recorded import SAVED, STEPS

SECONDS = 600.0
_OPENS = ("openat", "open", "creat")
_WRITES = ("write", "pwrite64", "writev", "pwritev", "pwritev2")
_NAMES = ("rename", "renameat", "renameat2", "mkdir", "mkdirat", "unlink", "unlinkat", "rmdir")
_LINKS = ("link", "linkat", "symlink", "symlinkat")
_OTHERS = (*_LINKS, "truncate", "fallocate", "dup", "dup2", "dup3", "fcntl")
_PROCESSES = ("clone", "clone3", "fork", "vfork")
_DONE = (*_WRITES, "ftruncate", "lseek", "close")
TRACED = (*_OPENS, *_DONE, *_NAMES, *_OTHERS, *_PROCESSES)
REFUSED = ("sendfile", "copy_file_range")
"""Calls that fail in a recording: their bytes would not be seen. Libraries then write instead."""


class Call(NamedTuple):
    """A call that changes files."""

    pid: int
    """The process."""
    verb: str
    """mkdir, open, write, resize, close, rename or remove."""
    path: str
    """The path below the recorded directory."""
    number: int = -1
    """The file descriptor of open, write, resize and close."""
    data: bytes = b""
    offset: int = 0
    """Where a write writes."""
    size: int = 0
    """The new size; of an open: 0 if it empties the file, or -1."""
    to: str = ""
    """The new path of a rename."""


class Recording(NamedTuple):
    """Two saves, one after the other."""

    saves: list[list[Call]]
    trees: list[dict[str, bytes]]
    """The files after each save, by path."""


def record(python: Path, call: str, pattern: str, root: Path, environment: dict[str, str]) -> Path:
    """Save twice below a directory. Returns the trace.

    Args:
        python: which has the library.
        call, pattern: see recorded.py.
        root: which is made.
    """
    (root / pattern).parent.mkdir(parents=True)
    Path(f"{root}{SAVED}").mkdir()
    trace = root.with_name(root.name + ".strace")
    options = ["-f", "--seccomp-bpf", "-y", "-xx", "-s", str(1 << 26), "-o", str(trace)]
    injected = f"inject={','.join(REFUSED)}:error=EINVAL"
    argv = ["strace", *options, "-e", f"trace={','.join((*TRACED, *REFUSED))}", "-e", injected]
    done = subprocess.run(
        [*argv, str(python), "-m", "tests.frameworks.recorded", call, str(root), pattern],
        # Lightning writes to a temporary file first. On a mount that is another file system.
        env={**os.environ, **environment, "TMPDIR": "/dev/shm"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return trace


def read(trace: Path, root: Path) -> list[list[Call]]:
    """Return the calls of each save of a trace, of files below a directory."""
    saves: list[list[Call]] = [[]]
    lines = list(_lines(trace.read_text("latin-1")))
    reader = _Reader(str(root), _processes(lines))
    for pid, text in lines:
        for call in reader.calls(pid, text):
            if call.path.startswith(SAVED + "/"):
                saves.append([])
            else:
                saves[-1].append(call)
    assert len(saves) == len(STEPS) + 1, "each save has an end"
    assert not saves.pop(), "nothing is written after the last save"
    return saves


_UNFINISHED = " <unfinished ...>"
_RESUMED = re.compile(r"<\.\.\. [a-z0-9_]+ resumed>(.*)", re.DOTALL)


def _lines(trace: str) -> Iterator[tuple[int, str]]:
    """Yield the calls of a trace with their threads, when they end."""
    begun: dict[int, str] = {}
    for line in trace.splitlines():
        tid, _, rest = line.partition(" ")
        rest = rest.strip()
        if rest.startswith(("+++", "---")):
            continue
        if rest.endswith(_UNFINISHED):
            begun[int(tid)] = rest.removesuffix(_UNFINISHED)
            if rest.startswith("close("):
                # Another thread may open a file with the same number before it ends.
                yield int(tid), begun[int(tid)] + ") = 0"
        elif (match := _RESUMED.match(rest)) is not None:
            text = begun.pop(int(tid))
            if not text.startswith("close("):
                yield int(tid), text + match[1]
        else:
            yield int(tid), rest


def _processes(lines: list[tuple[int, str]]) -> dict[int, int]:
    """Return the process of each thread that was made."""
    processes: dict[int, int] = {}
    for tid, text in lines:
        if text.startswith(_PROCESSES):
            made = re.search(r"\) += ([0-9]+)$", text)
            if made is not None and "CLONE_THREAD" in text:
                processes[int(made[1])] = tid
    return processes


_CALL = re.compile(r"([a-z0-9_]+)\((.*)\) += (-?[0-9]+|\?)(<[^>]*>)?", re.DOTALL)
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
_NUMBERED = re.compile(r"(-?[0-9]+|AT_FDCWD)<((?:\\x[0-9a-f]{2})*)>(\(deleted\))?")


class _Reader:
    """Reads calls, one after the other.

    Args:
        threads: their processes.
    """

    def __init__(self, root: str, threads: dict[int, int]) -> None:
        self._root = root
        self._threads = threads
        self._offsets: dict[tuple[int, int], int] = {}
        """Where the next write goes of each file that is open for writing, by process and number.
        -1: to its end."""

    def calls(self, tid: int, text: str) -> Iterator[Call]:
        match = _CALL.match(text)
        # A failed call changes nothing.
        if match is None or match[3] in ("?", "-1"):
            return
        name, arguments, result = match[1], match[2], int(match[3])
        pid = tid
        while pid in self._threads:
            pid = self._threads[pid]
        if name in _OPENS:
            yield from self._opened(pid, arguments, result, match[4] or "")
        elif name in _NAMES:
            yield from self._named(pid, name, arguments)
        elif name in _DONE:
            yield from self._done(pid, name, arguments, result)
        elif name in _OTHERS:
            self._other(pid, name, arguments)

    def _opened(self, pid: int, arguments: str, number: int, target: str) -> Iterator[Call]:
        path = self._below(_text(target[1:-1]))
        if path is None or not re.search(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC", arguments):
            return
        assert "O_TMPFILE" not in arguments, arguments
        is_emptied = "O_TRUNC" in arguments
        self._offsets[pid, number] = -1 if "O_APPEND" in arguments else 0
        yield Call(pid, "open", path, number, size=0 if is_emptied else -1)

    def _named(self, pid: int, name: str, arguments: str) -> Iterator[Call]:
        paths = [self._below(path) for path in _paths(arguments)]
        if name.startswith("rename"):
            source, target = paths
            if source is None and target is None:
                return
            assert source is not None, f"something is moved in: {arguments}"
            assert target is not None, f"something is moved out: {arguments}"
            yield Call(pid, "rename", source, to=target)
        elif paths[0] is not None:
            yield Call(pid, "mkdir" if name.startswith("mkdir") else "remove", paths[0])

    def _done(self, pid: int, name: str, arguments: str, result: int) -> Iterator[Call]:
        match = _NUMBERED.match(arguments)
        if match is None:
            return
        where = pid, int(match[1])
        path = self._below(_text(match[2]))
        if where not in self._offsets or path is None:
            is_change = name in (*_WRITES, "ftruncate")
            assert path is None or not is_change, f"a file that another has opened: {arguments}"
            return
        if name == "close":
            del self._offsets[where]
            yield Call(pid, "close", path, where[1])
        elif name == "lseek":
            self._offsets[where] = result
        elif name == "ftruncate":
            size = int(arguments.rpartition(", ")[2])
            yield Call(pid, "resize", path, where[1], size=size)
        else:
            data = b"".join(_bytes(one) for one in _STRING.findall(arguments))[:result]
            assert len(data) == result, arguments[:200]
            offset = self._offsets[where]
            if name.startswith("pwrite"):
                offset = int(re.findall(r", ([0-9]+)", arguments)[-1])
            elif offset >= 0:
                self._offsets[where] += result
            yield Call(pid, "write", path, where[1], data, offset)

    def _other(self, pid: int, name: str, arguments: str) -> None:
        if name == "fcntl" and "F_DUPFD" not in arguments:
            return
        for match in _NUMBERED.finditer(arguments):
            is_open = match[1].isdigit() and (pid, int(match[1])) in self._offsets
            assert not is_open, f"a call that is not known here: {name}({arguments})"
        paths = [self._below(path) for path in _paths(arguments)]
        assert not any(paths), f"a call that is not known here: {name}({arguments})"

    def _below(self, path: str) -> str | None:
        """Return a path below the root, or one of the ends of saves, or None."""
        if path.startswith(f"{self._root}{SAVED}/"):
            return path.removeprefix(self._root)
        return path.removeprefix(self._root + "/") if path.startswith(self._root + "/") else None


def _paths(arguments: str) -> Iterator[str]:
    """Yield the paths in arguments. One of the calls ``*at`` may be below a directory."""
    for match in re.finditer(rf"(?:{_NUMBERED.pattern}, )?{_STRING.pattern}", arguments):
        yield os.path.normpath(os.path.join(_text(match[2] or ""), _text(match[4])))  # noqa: PTH118


def _text(escaped: str) -> str:
    return os.fsdecode(_raw(escaped))


def _bytes(found: tuple[str, str]) -> bytes:
    assert not found[1], "strace has cut off a string"
    return _raw(found[0])


def _raw(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("\\x", ""))
