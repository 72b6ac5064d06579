"""Changes of names through the NFS server (make, rename, remove), guarded like deletions.

Everything runs in the name of root. What was done stays done, so it can be asked for again after a
failure.

A tree that a person removes may have checkpoints in it. Those that are complete go into the trash
as ``spillway checkpoint delete`` puts them there, each recorded as a deletion, and the rest is
removed. If a deletion guard keeps one of them, nothing is done unless the person insists. What is
pinned stays in any case. A rename must pass the deletion guards too.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from gateway.common import clock, logs, process
from gateway.common.errors import RESTART, NotPossible, NotThere, TrashRefused, UserError
from gateway.common.models import Model
from gateway.common.patterns import IncompleteNames
from gateway.common.text import encoded, printable, text_of
from gateway.common.types import NAME_MAX_BYTES, Extent, InodeKind, SetAttr
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.db.models import RESERVED_NAME
from gateway.lifecycle.retention import store as own
from gateway.lifecycle.retention.facts import PlanCheckpoint
from gateway.lifecycle.retention.planning import checkpoint_of
from gateway.namespace.lookup import Browser
from gateway.rpc.control import ControlSocket
from gateway.rpc.frames import Op, RpcReply, RpcRequest
from gateway.rpc.removal import TreeRemoval
from gateway.service import deletion
from gateway.service.jobs import Progress, Tell
from gateway.service.paths import ResolvedPath, is_below, names_of, resolve, shown_path

log = logging.getLogger("admin.rpc")
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
    return UserError(f"{shown_path(target)} is not a directory: make it: spillway mkdir")


def unguarded(_path: str, _target: str) -> None:
    """Let each rename pass."""


class RpcCaller:
    """Asks over the control socket, and repeats requests that must wait.

    Args:
        busy_seconds: for how long.
    """

    def __init__(self, control: ControlSocket, busy_seconds: float = BUSY_SECONDS) -> None:
        self._control = control
        self._busy_seconds = busy_seconds

    def run(self, requests: Sequence[RpcRequest]) -> list[RpcReply]:
        """Have requests answered. Raises ControlSocketClosed, KeyboardInterrupt."""
        process.check()
        answers = self._control.run(requests)
        until = clock.monotonic_seconds() + self._busy_seconds
        while clock.monotonic_seconds() < until:
            waiting = [at for at, answer in enumerate(answers) if answer.errno == errno.EAGAIN]
            if not waiting:
                break
            time.sleep(PAUSE_SECONDS)
            for at, answer in zip(
                waiting, self._control.run([requests[at] for at in waiting]), strict=True
            ):
                answers[at] = answer
        logs.event(
            *(log, logging.INFO if requests else logging.DEBUG),
            rpc="+".join(sorted({request.op.name.lower() for request in requests})),
            requests=len(requests),
            refused=sum(answer.errno != 0 for answer in answers),
        )
        return answers

    def one(self, path: str, request: RpcRequest) -> None:
        """Have one request done. Raises NotPossible, ControlSocketClosed."""
        [answer] = self.run([request])
        if answer.errno == 0:
            return
        text = f"{shown_path(path)}: {reason(answer.errno)}"
        if answer.errno in (errno.ENOENT, errno.ESTALE):
            raise NotThere(text)
        raise NotPossible(text)


def reason(number: int) -> str:
    """Return an errno in words, with what to do where that is known."""
    return REASONS.get(number) or os.strerror(number).lower()


class Names:
    """Changes the names of one namespace. Its methods raise NotPossible, ControlSocketClosed,
    TryAgain.

    Args:
        guard: guard of renames.
    """

    def __init__(
        self,
        settings: Settings,
        browser: Browser,
        asker: RpcCaller,
        guard: Guard = unguarded,
    ) -> None:
        self._settings = settings
        self._browser = browser
        self._asker = asker
        self._guard = guard

    def make(self, path: str, wanted: SetAttr) -> None:
        """Make a directory.

        Args:
            wanted: its mode and owner; None: root.
        """
        self.require_not_reserved(path)
        place = self._resolve(path)
        if place.entry is not None:
            raise NotPossible(f"{shown_path(path)}: it is there already")
        self._asker.one(path, RpcRequest(Op.MKDIR, place.parent, place.name, wanted=wanted))

    def make_all(self, path: str, wanted: SetAttr) -> None:
        """Make a directory, and those that lead to it. What is there already is fine, and stays as
        it is. Args: as of ``make``."""
        self.require_not_reserved(path)
        names = names_of(self._settings.nfs.export, path)
        for count in range(1, len(names) + 1):
            above = "/".join(["", *map(os.fsdecode, names[:count])])
            place = self._resolve(f"{self._settings.nfs.export}{above}")
            if place.entry is None:
                self._asker.one(path, RpcRequest(Op.MKDIR, place.parent, place.name, wanted=wanted))
            elif not place.is_directory:
                raise NotPossible(f"{shown_path(path)}: {printable(place.name)} is not a directory")

    def set_attributes(self, path: str, wanted: SetAttr) -> ResolvedPath:
        """Set mode, user or group of what a path names, also of the export's root. A symbolic link
        is not followed. Returns what it was before."""
        self.require_not_reserved(path)
        place = self._resolve(path)
        self._asker.one(path, RpcRequest(Op.SETATTR, place.found().attr.ino, wanted=wanted))
        return place

    def move(self, path: str, target: str, *, is_alone: bool = True) -> str:
        """Rename as rename(2) does, or move into a directory. Returns the new path.

        Raises UserError too if none of them can be moved there.

        Args:
            target: a new name, or a directory.
            is_alone: whether nothing else is moved to the same target, which may then be a new
                name.
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
            raise NotPossible(f"{shown_path(target)}: no such directory: make it: spillway mkdir")
        self._guard(path, made)
        self._asker.one(path, RpcRequest(Op.RENAME, source.parent, source.name, parent, name))
        return made

    def rename(self, path: str, target: str, *, replaces: bool = False) -> None:
        """Rename.

        Args:
            target: The whole new path.
            replaces: Whether what has the new name loses it, as in rename(2).
        """
        self.require_not_reserved(path)
        self.require_not_reserved(target)
        source, to = self._named(path, "moved"), self._resolve(target)
        is_taken = to.entry is not None and to.entry.attr.ino != source.found().attr.ino
        if is_taken and not replaces:
            raise NotPossible(f"{shown_path(target)}: it is there already: remove it first")
        self._guard(path, target)
        request = RpcRequest(Op.RENAME, source.parent, source.name, to.parent, to.name)
        self._asker.one(path, request)

    def find(self, path: str) -> ResolvedPath:
        """Return what is to be removed. The export's root cannot be."""
        self.require_not_reserved(path)
        return self._named(path, "removed")

    def remove(self, place: ResolvedPath) -> None:
        """Remove a name that is no directory, or an empty directory."""
        attr = place.found().attr
        self._asker.one(place.path, RpcRequest(Op.REMOVE, place.parent, place.name, attr.ino))

    def remove_tree(self, place: ResolvedPath, on_removed: Callable[[int], None]) -> TreeRemoval:
        """Remove a directory with all in it. Returns what was removed, and what is left.

        Args:
            on_removed: called now and then with the number of names that are removed.
        """
        removal = TreeRemoval(self._browser, self._asker.run, on_removed)
        removal.tree(place.parent, place.name, place.found().attr.ino)
        return removal

    def require_not_reserved(self, path: str) -> None:
        """Raise NotPossible for what belongs to the gateway."""
        if names_of(self._settings.nfs.export, path)[:1] == [RESERVED_NAME]:
            raise NotPossible(
                f"{shown_path(path)}: {printable(RESERVED_NAME)} in the root is kept for the "
                "gateway"
            )

    def _resolve(self, path: str) -> ResolvedPath:
        place = resolve(self._browser, self._settings, path)
        if len(place.name) > NAME_MAX_BYTES:
            # It may be too long even for a request over the control socket.
            raise NotPossible(f"{shown_path(path)}: a name has at most {NAME_MAX_BYTES} bytes")
        return place

    def _named(self, path: str, description: str) -> ResolvedPath:
        place = self._resolve(path)
        place.found()
        if not place.name:
            raise NotPossible(f"{shown_path(path)}: the export's root cannot be {description}")
        return place


TREE = "a person removed its tree"
"""The reason that is recorded."""


@dataclass(frozen=True, slots=True)
class RemovedTree(Model):
    """What became of a file, or of a directory with everything in it."""

    path: str
    was_directory: bool
    """Whether it was one. False too if there was nothing."""
    removed_names: int
    failures: list[str]
    """Why others are left."""
    trashed: dict[str, str]
    """Paths of the checkpoints that are in the trash, below the export, by their ids there."""


def is_a_directory(path: str) -> NotPossible:
    """Return why a directory is not removed. Args: path of the command line."""
    return NotPossible(f"{shown_path(path)}: it is a directory: spillway rm -r removes all of it")


class Guarded:
    """Removes trees of one namespace. Its method raises NotPossible, UserError,
    ControlSocketClosed, NamespaceError, OSError."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        browser: Browser,
        names: Names,
        control: ControlSocket,
    ) -> None:
        self._settings = settings
        self._database = database
        self._browser = browser
        self._names = names
        self._control = control

    def remove(
        self, path: str, place: ResolvedPath, progress: Tell, *, author: str, insists: bool
    ) -> RemovedTree:
        """Remove a directory with everything in it. What was done before an error stays done.

        Args:
            path: of the command line.
            place: what it names.
            author: the person.
            insists: whether it is removed although a deletion guard keeps a checkpoint in it.
        """
        failures: list[str] = []
        trashed = {}
        removed = 0
        top = below(self._settings, path)
        checkpoints = deletion.check_tree(self._settings, self._database, top, insists=insists)
        for checkpoint in checkpoints:
            if checkpoint.extent == Extent.FILES:
                removed += self._empty(checkpoint, progress, failures)
            trashed[self._delete(checkpoint, author, insists)] = text_of(checkpoint.path)
        if place.found().attr.ino not in {checkpoint.ino for checkpoint in checkpoints}:
            removed += self._remove_tree(place, progress, failures)
        return RemovedTree(encoded(path), True, removed, failures, trashed)

    def _empty(self, checkpoint: PlanCheckpoint, progress: Tell, failures: list[str]) -> int:
        """Remove the directories beside the files of a checkpoint, which are no part of it. Returns
        the number of names."""
        removed = 0
        above = f"{self._settings.nfs.export}/{os.fsdecode(checkpoint.path)}"
        for entry in list(self._browser.entries(checkpoint.ino)):
            if entry.attr.kind == InodeKind.DIRECTORY:
                place = ResolvedPath(
                    f"{above}/{os.fsdecode(entry.name)}", checkpoint.ino, entry.name, entry
                )
                removed += self._remove_tree(place, progress, failures)
        return removed

    def _remove_tree(self, place: ResolvedPath, progress: Tell, failures: list[str]) -> int:
        """Remove what no deletion guard keeps, and add why names are left. Returns the number of
        names."""
        removal = self._names.remove_tree(
            place, lambda count: progress(Progress(count, None, f"{count:,} names removed"))
        )
        failures += [f"{shown_path(place.path)}{at}: {reason(why)}" for at, why in removal.failures]
        return removal.removed

    def _delete(self, checkpoint: PlanCheckpoint, author: str, insists: bool) -> str:
        try:
            return deletion.delete(
                self._settings,
                self._database,
                checkpoint.ino,
                author=author,
                reason=TREE,
                insists=insists,
                seen=[checkpoint.evidence],
                open_control=lambda: nullcontext(self._control),
            )
        except (TrashRefused, NotThere) as exc:
            raise NotPossible(f"{printable(checkpoint.path)} stays: {exc}") from None


def require_not_hidden(
    settings: Settings, database: Database, path: str, target: str, *, insists: bool
) -> None:
    """Require that a rename gives no durable checkpoint a name that is held: it would not be sent
    from then on, and no receipt would name it. Raises NotPossible.

    Args:
        path, target: the whole paths before and after.
        insists: whether it is renamed nevertheless.
    """
    names = names_of(settings.nfs.export, target)
    holds = IncompleteNames(settings.drain.incomplete_patterns)
    held = [name for at, name in enumerate(names) if holds.holds(names[:at], name)]
    if insists or not held:
        return
    top = below(settings, path)
    with database.reading() as session:
        checkpoints = [checkpoint_of(row) for row in session.all(own.CHECKPOINTS)]
    for checkpoint in checkpoints:
        if checkpoint.is_durable and is_below(checkpoint.path, top):
            raise NotPossible(
                f"{shown_path(path)}: {printable(checkpoint.path)} is in the bucket, and "
                f"{printable(held[0])} is a name that drain.incomplete_patterns holds: choose "
                "another one, or insist: --force"
            )


def below(settings: Settings, path: str) -> bytes:
    """Return a path below the export's root."""
    return b"/".join(names_of(settings.nfs.export, path))
