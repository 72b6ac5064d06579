"""Changes names through the NFS server: makes, renames, removes.

Everything runs in the name of root. What was done stays done, so it can be asked for again after a
failure.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Sequence

from gateway import clock, interrupt, logs
from gateway.control.paths import Place, names_of, resolve, shown
from gateway.db.models import RESERVED_NAME
from gateway.door.door import Door
from gateway.door.frames import Answer, Op, Request
from gateway.door.removal import Removal
from gateway.errors import RESTART, NotPossible, NotThere, UserError
from gateway.namespace.browse import Browser
from gateway.settings import Settings
from gateway.text import printable
from gateway.types import NAME_MAX_BYTES, SetAttr

log = logging.getLogger("admin.door")
"""Commands configure no loggers: only the admin API shows these lines, with the request's id."""

BUSY_SECONDS = 60.0
PAUSE_SECONDS = 0.2
REASONS = {
    errno.EINVAL: "the name cannot be used, or a directory would be moved below itself",
    errno.ESTALE: "it is gone or was moved meanwhile: look with spillway ls",
    errno.ENOTEMPTY: "the directory is not empty, or is filled meanwhile",
    errno.EAGAIN: "the database does not answer: try again",
    errno.EPROTONOSUPPORT: f"the NFS server is of another version: {RESTART}",
}


Guard = Callable[[str, str], object]
"""Called with the paths before and after a rename: what it raises stops that."""


def no_directory(target: str) -> UserError:
    """Return why several files cannot be moved. Args: target, a path of the command line."""
    return UserError(f"{shown(target)} is not a directory: make it: spillway mkdir")


def unguarded(_path: str, _target: str) -> None:
    """Let each rename pass."""


class Asker:
    """Asks at the door, and repeats requests that must wait.

    Parameters: busy_seconds, for how long.
    """

    def __init__(self, door: Door, busy_seconds: float = BUSY_SECONDS) -> None:
        self._door = door
        self._busy_seconds = busy_seconds

    def run(self, requests: Sequence[Request]) -> list[Answer]:
        """Have requests answered. Raises DoorClosed, KeyboardInterrupt."""
        interrupt.check()
        answers = self._door.run(requests)
        until = clock.monotonic_seconds() + self._busy_seconds
        while clock.monotonic_seconds() < until:
            waiting = [at for at, answer in enumerate(answers) if answer.errno == errno.EAGAIN]
            if not waiting:
                break
            time.sleep(PAUSE_SECONDS)
            for at, answer in zip(
                waiting, self._door.run([requests[at] for at in waiting]), strict=True
            ):
                answers[at] = answer
        logs.event(
            *(log, logging.INFO if requests else logging.DEBUG),
            door="+".join(sorted({request.op.name.lower() for request in requests})),
            requests=len(requests),
            refused=sum(answer.errno != 0 for answer in answers),
        )
        return answers

    def one(self, path: str, request: Request) -> None:
        """Have one request done. Raises NotPossible, DoorClosed."""
        [answer] = self.run([request])
        if answer.errno == 0:
            return
        text = f"{shown(path)}: {reason(answer.errno)}"
        if answer.errno in (errno.ENOENT, errno.ESTALE):
            raise NotThere(text)
        raise NotPossible(text)


def reason(number: int) -> str:
    """Return an errno in words, with what to do where that is known."""
    return REASONS.get(number) or os.strerror(number).lower()


class Names:
    """Changes the names of one namespace. Its methods raise NotPossible, DoorClosed, TryAgain.

    Parameters: settings; browser; asker; guard, of renames.
    """

    def __init__(
        self,
        settings: Settings,
        browser: Browser,
        asker: Asker,
        guard: Guard = unguarded,
    ) -> None:
        self._settings = settings
        self._browser = browser
        self._asker = asker
        self._guard = guard

    def make(self, path: str, wanted: SetAttr) -> None:
        """Make a directory. Parameters: wanted, its mode and owner; None: root."""
        self.require_not_reserved(path)
        place = self._resolve(path)
        if place.entry is not None:
            raise NotPossible(f"{shown(path)}: it is there already")
        self._asker.one(path, Request(Op.MKDIR, place.parent, place.name, wanted=wanted))

    def make_all(self, path: str, wanted: SetAttr) -> None:
        """Make a directory, and those that lead to it. What is there already is fine, and stays as
        it is. Parameters: those of ``make``."""
        self.require_not_reserved(path)
        names = names_of(self._settings.nfs.export, path)
        for count in range(1, len(names) + 1):
            above = "/".join(["", *map(os.fsdecode, names[:count])])
            place = self._resolve(f"{self._settings.nfs.export}{above}")
            if place.entry is None:
                self._asker.one(path, Request(Op.MKDIR, place.parent, place.name, wanted=wanted))
            elif not place.is_directory:
                raise NotPossible(f"{shown(path)}: {printable(place.name)} is not a directory")

    def set_attributes(self, path: str, wanted: SetAttr) -> Place:
        """Set mode, user or group of what a path names, also of the export's root. A symbolic link
        is not followed. Returns what it was before."""
        self.require_not_reserved(path)
        place = self._resolve(path)
        self._asker.one(path, Request(Op.SETATTR, place.found().attr.ino, wanted=wanted))
        return place

    def move(self, path: str, target: str, *, is_alone: bool = True) -> str:
        """Rename as rename(2) does, or move into a directory. Returns the new path.

        Parameters: target, a new name, or a directory; is_alone, whether nothing else is moved to
        the same target, which may then be a new name. Raises UserError
        too if none of them can be moved there.
        """
        self.require_not_reserved(path)
        self.require_not_reserved(target)
        source = self._named(path, "moved")
        to = self._resolve(target)
        parent, name, made = to.parent, to.name, target
        if to.is_directory:
            parent, name = to.found().attr.ino, source.name
            made = f"{target.rstrip('/')}/{os.fsdecode(name)}"
        elif not is_alone:
            raise no_directory(target)
        elif target.endswith("/") and not source.is_directory:
            raise NotPossible(f"{shown(target)}: no such directory: make it: spillway mkdir")
        self._guard(path, made)
        self._asker.one(path, Request(Op.RENAME, source.parent, source.name, parent, name))
        return made

    def rename(self, path: str, target: str) -> None:
        """Rename, and replace nothing. Parameters: target, the whole new path."""
        self.require_not_reserved(path)
        self.require_not_reserved(target)
        source, to = self._named(path, "moved"), self._resolve(target)
        if to.entry is not None and to.entry.attr.ino != source.found().attr.ino:
            raise NotPossible(f"{shown(target)}: it is there already: remove it first")
        self._guard(path, target)
        request = Request(Op.RENAME, source.parent, source.name, to.parent, to.name)
        self._asker.one(path, request)

    def find(self, path: str) -> Place:
        """Return what is to be removed. The export's root cannot be."""
        self.require_not_reserved(path)
        return self._named(path, "removed")

    def remove(self, place: Place) -> None:
        """Remove a name that is no directory, or an empty directory."""
        found = place.found().attr
        self._asker.one(place.path, Request(Op.REMOVE, place.parent, place.name, found.ino))

    def remove_tree(self, place: Place, on_removed: Callable[[int], None]) -> Removal:
        """Remove a directory with all in it. Returns what was removed, and what is left.

        Parameters: on_removed, called now and then with the number of names that are removed.
        """
        removal = Removal(self._browser, self._asker.run, on_removed)
        removal.tree(place.parent, place.name, place.found().attr.ino)
        return removal

    def require_not_reserved(self, path: str) -> None:
        """Raise NotPossible for what belongs to the gateway."""
        if names_of(self._settings.nfs.export, path)[:1] == [RESERVED_NAME]:
            raise NotPossible(
                f"{shown(path)}: {printable(RESERVED_NAME)} in the root is kept for the gateway"
            )

    def _resolve(self, path: str) -> Place:
        place = resolve(self._browser, self._settings, path)
        if len(place.name) > NAME_MAX_BYTES:
            # It may be too long even for a request at the door.
            raise NotPossible(f"{shown(path)}: a name has at most {NAME_MAX_BYTES} bytes")
        return place

    def _named(self, path: str, what: str) -> Place:
        place = self._resolve(path)
        place.found()
        if not place.name:
            raise NotPossible(f"{shown(path)}: the export's root cannot be {what}")
        return place
