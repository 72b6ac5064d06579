"""Resolver of paths of the namespace as people write them, and models of what they name."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gateway.common.errors import NotPossible, NotThere
from gateway.common.models import Model, Nanoseconds, values_of
from gateway.common.text import display, encoded, printable, text_of
from gateway.common.types import Attr, InodeKind, Residency
from gateway.config.settings import Settings
from gateway.db.models import ROOT_INO
from gateway.db.schema import opened
from gateway.namespace.lookup import Browser, NamedInode

_TYPES = {
    InodeKind.REGULAR: ("file", stat.S_IFREG),
    InodeKind.CHARACTER: ("character device", stat.S_IFCHR),
    InodeKind.BLOCK: ("block device", stat.S_IFBLK),
    InodeKind.SYMLINK: ("symbolic link", stat.S_IFLNK),
    InodeKind.SOCKET: ("socket", stat.S_IFSOCK),
    InodeKind.FIFO: ("fifo", stat.S_IFIFO),
    InodeKind.DIRECTORY: ("directory", stat.S_IFDIR),
}

FORMATS = dict(_TYPES.values())
"""The format bits of a mode (stat.S_IFMT), by the name of the kind."""
REMOVED = "(removed)"
"""Shown in place of the target of a symbolic link that was removed after it was listed."""


LINKS_MAX = 40
"""The symbolic links of one path that are followed, as in Linux."""


@dataclass(frozen=True, slots=True)
class PathInfo(Model):
    """A file, a directory, a link or a special file."""

    path: str = field(metadata={"examples": ["/checkpoints/jobs/a/step-1/model.pt"]})
    kind: str = field(metadata={"examples": ["file"]})
    ino: int
    """Its number, which a rename does not change."""
    size_bytes: int
    used_bytes: int
    """On the local disk."""
    mode: str = field(metadata={"examples": ["0644"]})
    """Permissions, octal."""
    uid: int
    gid: int
    names: int
    """Hard links."""
    modified_ns: Nanoseconds
    """When its bytes were changed last."""
    changed_ns: Nanoseconds
    """When its bytes, names or permissions were changed last."""
    created_ns: Nanoseconds
    open_for_writing: bool
    pinned: bool
    """Whether it, or a directory above it, is pinned."""
    bytes: str | None
    """Where those of a file are: resident, partial or absent."""
    target: str | None
    """The target of a symbolic link, unless the link was removed meanwhile."""


@dataclass(frozen=True, slots=True)
class Child(Model):
    """A name in a directory."""

    name: str = field(metadata={"examples": ["step-1200"]})
    path: str
    kind: str = field(metadata={"examples": ["file"]})
    ino: int
    size_bytes: int
    used_bytes: int
    """On the local disk."""
    mode: str = field(metadata={"examples": ["0644"]})
    """Permissions, octal."""
    uid: int
    gid: int
    modified_ns: Nanoseconds
    open_for_writing: bool
    on_disk: bool
    """False: its bytes are in the bucket, or only some are here."""
    names: int | None = None
    """Hard links. This and the rest are there with `details`."""
    changed_ns: Nanoseconds | None = None
    created_ns: Nanoseconds | None = None
    pinned: bool | None = None
    """Whether it, or a directory above it, is pinned."""
    bytes: str | None = None
    """Where those of a file are: resident, partial or absent."""
    target: str | None = None
    """The target of a symbolic link."""


class ResolvedPath(NamedTuple):
    """A name in a directory that exists. The name itself may not exist."""

    path: str
    """The path as it was written, to be shown."""
    parent: int
    name: bytes
    """The name, or b"" for the export's root."""
    entry: NamedInode | None

    @property
    def is_directory(self) -> bool:
        return self.entry is not None and self.entry.attr.kind == InodeKind.DIRECTORY

    def found(self) -> NamedInode:
        """Return what the name stands for. Raises NotPossible if there is nothing."""
        if self.entry is None:
            raise NotThere(f"{self.path}: no such file or directory: spillway ls shows what is")
        return self.entry


def shown_path(path: str) -> str:
    """Return a path of the command line in a form that any terminal and encoding can show."""
    return printable(os.fsencode(path))


@contextmanager
def browsing(settings: Settings) -> Iterator[Browser]:
    """Open the namespace for reading. Raises SchemaError; UserError while it cannot be read."""
    with opened(settings.database_url), Browser(settings) as browser:
        yield browser


def names_of(export: str, path: str) -> list[bytes]:
    """Return the names of a path below the export's root, from a path with or without the
    export."""
    below = path if path.startswith("/") else f"{export}/{path}"
    if f"{below}/".startswith(f"{export}/"):
        below = below[len(export) :]
    return [name for name in os.fsencode(below).split(b"/") if name not in (b"", b".")]


def is_below(path: bytes, top: bytes) -> bool:
    """Return whether a path is another one, or below it. The root is empty."""
    return not top or path == top or path.startswith(top + b"/")


def resolve(browser: Browser, settings: Settings, path: str) -> ResolvedPath:
    """Find a path. Symbolic links are not followed: they are meant for clients, which mount
    elsewhere.

    Raises NotPossible when its directory does not exist.
    """
    names = names_of(settings.nfs.export, path)
    path = shown_path(path)
    place = ResolvedPath(path, ROOT_INO, b"", browser.root())
    for name in names:
        parent = place.found()
        if parent.attr.kind == InodeKind.SYMLINK:
            target = _target(browser, parent.attr.ino)
            to = REMOVED if target is None else display(target)
            raise NotPossible(
                f"{path}: {printable(parent.name)} is a symbolic link to {to}, which is not "
                "followed here: name the directory itself"
            )
        if parent.attr.kind != InodeKind.DIRECTORY:
            raise NotPossible(f"{path}: {printable(parent.name)} is not a directory")
        place = ResolvedPath(path, parent.attr.ino, name, browser.entry(parent.attr.ino, name))
    return place


def follow(browser: Browser, settings: Settings, path: str) -> ResolvedPath:
    """Find a path, and follow symbolic links that lead to a place in the namespace.

    Raises NotPossible when there is nothing, or when a link leads out of the export.
    """
    waiting = names_of(settings.nfs.export, path)[::-1]
    path = shown_path(path)
    way = [ResolvedPath(path, ROOT_INO, b"", browser.root())]
    links: list[str] = []
    while waiting:
        name, above = waiting.pop(), way[-1].found()
        through = f", through the symbolic link to {links[-1]}" if links else ""
        if name == b"..":
            if len(way) == 1:
                raise NotPossible(f"{path}: it leads out of the export{through}")
            way.pop()
            continue
        if above.attr.kind != InodeKind.DIRECTORY:
            raise NotPossible(f"{path}: {printable(way[-1].name)} is not a directory{through}")
        place = ResolvedPath(path, above.attr.ino, name, browser.entry(above.attr.ino, name))
        if place.entry is None:
            raise NotThere(
                f"{path}: there is no {printable(name)}{through}: spillway ls shows what is"
            )
        if place.entry.attr.kind != InodeKind.SYMLINK:
            way.append(place)
            continue
        target = browser.target(place.entry.attr.ino)
        if target is None:
            raise NotPossible(f"{path}: {printable(name)} was removed meanwhile: try again")
        links.append(printable(target))
        if len(links) > LINKS_MAX:
            raise NotPossible(f"{path}: more than {LINKS_MAX} symbolic links follow each other")
        if target.startswith(b"/"):
            export = os.fsencode(settings.nfs.export)
            if not f"{os.fsdecode(target)}/".startswith(f"{settings.nfs.export}/"):
                raise NotPossible(
                    f"{path}: the symbolic link to {links[-1]} leads out of the export: name the "
                    "directory itself"
                )
            target, way = target[len(export) :], way[:1]
        waiting += [
            target_name for target_name in target.split(b"/") if target_name not in (b"", b".")
        ][::-1]
    return way[-1]


def files_below(
    browser: Browser, settings: Settings, path: str
) -> Iterator[tuple[str, NamedInode]]:
    """Yield the regular files at or below a path of the command line, with their paths as models
    have them. Symbolic links on the way to it are followed.

    Raises NotPossible if there is nothing, or neither a file nor a directory.
    """
    place = follow(browser, settings, path)
    entry = place.found()
    if entry.attr.kind == InodeKind.REGULAR:
        yield encoded(path), entry
    elif not place.is_directory:
        raise NotPossible(f"{place.path} is a {_TYPES[InodeKind(entry.attr.kind)][0]}, not a file")
    waiting = [(encoded(path).rstrip("/"), entry.attr.ino)] if place.is_directory else []
    while waiting:
        above, ino = waiting.pop()
        for child in browser.entries(ino):
            path = f"{above}/{text_of(child.name)}"
            if child.attr.kind == InodeKind.DIRECTORY:
                waiting.append((path, child.attr.ino))
            elif child.attr.kind == InodeKind.REGULAR:
                yield path, child


def path_of(settings: Settings, below: bytes) -> str:
    """Return a path as models have it. Args: below the export, b"" for its root."""
    return text_of(os.fsencode(settings.nfs.export) + (b"/" + below if below else b""))


def path_info(browser: Browser, path: str, entry: NamedInode) -> PathInfo:
    """Return what an inode is. Args: path, as models have it."""
    return PathInfo(path=path, **_basics(entry), **_details(browser, entry.attr))


def child(above: str, entry: NamedInode, browser: Browser | None) -> Child:
    """Return an entry of a directory.

    Args:
        above: path of the directory, as models have it.
        browser: if details are wanted, which take a query for each entry.
    """
    attr, name = entry.attr, text_of(entry.name)
    return Child(
        name=name,
        path=f"{above}/{name}",
        **_basics(entry),
        on_disk=attr.kind != InodeKind.REGULAR or attr.residency == Residency.RESIDENT,
        **({} if browser is None else _details(browser, attr)),
    )


def as_child(one: PathInfo) -> Child:
    """Return a file as its directory lists it."""
    details = values_of(one)
    on_disk = one.kind != "file" or one.bytes == "resident"
    return Child(
        name=one.path.rpartition("/")[2],
        on_disk=on_disk,
        **{name: details[name] for name in Child.__dataclass_fields__.keys() & details.keys()},
    )


def _basics(entry: NamedInode) -> dict[str, Any]:
    attr = entry.attr
    return {
        "kind": _TYPES[InodeKind(attr.kind)][0],
        "ino": attr.ino,
        "size_bytes": attr.size,
        "used_bytes": attr.used,
        "mode": f"{attr.mode:04o}",
        "uid": attr.uid,
        "gid": attr.gid,
        "modified_ns": attr.mtime_ns,
        "open_for_writing": entry.is_open,
    }


def _details(browser: Browser, attr: Attr) -> dict[str, Any]:
    return {
        "names": attr.nlink,
        "changed_ns": attr.ctime_ns,
        "created_ns": attr.btime_ns,
        "pinned": browser.is_pinned(attr.ino),
        "bytes": browser.place_of_bytes(attr) if attr.kind == InodeKind.REGULAR else None,
        "target": _target(browser, attr.ino) if attr.kind == InodeKind.SYMLINK else None,
    }


def _target(browser: Browser, ino: int) -> str | None:
    """Return the target of a symbolic link, or None if the link was removed."""
    target = browser.target(ino)
    return None if target is None else text_of(target)
