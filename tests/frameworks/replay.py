"""Does what recorded calls did, in memory and in a namespace with a follower."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.frameworks.recorder import Call
from tests.support.checkpoints.world import World


@dataclass
class File:
    """A file, with what its writers have written."""

    path: str
    """Empty: it was removed or replaced."""
    data: bytearray = field(default_factory=bytearray)
    opens: int = 0


class Replay:
    """A client machine with the processes of a save.

    Args:
        world: world, or None: it is done in memory only.
        top: the directory in it that stands for the recorded one.
        files: that are there already, by path below it.
    """

    def __init__(
        self, world: World | None, top: str = "", files: dict[str, bytes] | None = None
    ) -> None:
        self._world = world
        self._top = top
        self._files = {path: File(path, bytearray(data)) for path, data in (files or {}).items()}
        self._opened: dict[tuple[int, int], File] = {}

    def tree(self) -> dict[str, bytes]:
        """Return all files, by path."""
        return {path: bytes(file.data) for path, file in self._files.items()}

    def apply(self, calls: Iterable[Call]) -> None:
        """Do calls."""
        for call in calls:
            getattr(self, f"_{call.verb}")(call)

    def kill(self, pids: Iterable[int] | None = None) -> None:
        """End processes, all of them by default: their files are closed as they are."""
        for where in list(self._opened):
            if pids is None or where[0] in pids:
                self._end(where)

    def _mkdir(self, call: Call) -> None:
        if self._world is not None:
            self._world.directory(self._at(call.path))

    def _open(self, call: Call) -> None:
        file = self._files.setdefault(call.path, File(call.path))
        if self._world is not None and not file.opens:
            self._world.open(self._at(call.path))
        if not call.size:
            file.data.clear()
        file.opens += 1
        self._opened[call.pid, call.number] = file

    def _write(self, call: Call) -> None:
        data = self._opened[call.pid, call.number].data
        offset = len(data) if call.offset < 0 else call.offset
        data.extend(bytes(max(0, offset - len(data))))
        data[offset : offset + len(call.data)] = call.data

    def _resize(self, call: Call) -> None:
        data = self._opened[call.pid, call.number].data
        data.extend(bytes(max(0, call.size - len(data))))
        del data[call.size :]

    def _close(self, call: Call) -> None:
        self._end((call.pid, call.number))

    def _end(self, where: tuple[int, int]) -> None:
        file = self._opened.pop(where)
        file.opens -= 1
        if self._world is not None and not file.opens and file.path:
            self._world.close(self._at(file.path), bytes(file.data))

    def _rename(self, call: Call) -> None:
        moved = [path for path in self._files if _is_in(path, call.path)]
        for path in moved:
            to = call.to + path[len(call.path) :]
            self._unname(to)
            file = self._files.pop(path)
            file.path = to
            self._files[to] = file
        if self._world is not None:
            self._world.rename(self._at(call.path), self._at(call.to))

    def _remove(self, call: Call) -> None:
        self._unname(call.path)
        if self._world is not None:
            self._world.remove(self._at(call.path))

    def _unname(self, path: str) -> None:
        """Take the name of a file away. Its writers write to nothing from then on."""
        file = self._files.pop(path, None)
        if file is None:
            return
        if self._world is not None and file.opens:
            self._world.close(self._at(path), bytes(file.data))
        file.path = ""

    def _at(self, path: str) -> str:
        return f"{self._top}/{path}"


def _is_in(path: str, above: str) -> bool:
    return path == above or path.startswith(above + "/")


def below(tree: dict[str, bytes], path: str) -> dict[str, bytes]:
    """Return the files of a tree that are a path, or below it."""
    return {one: data for one, data in tree.items() if _is_in(one, path)}
