"""What must be true of a namespace that was restored after a loss, by the log of the job.

The names are those of one moment of the log, no older than status had shown. Later operations show
only where an object in the bucket tells of them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gateway.common.types import ROOT_CRED, Attr, InodeKind
from gateway.config.settings import Settings
from gateway.db.models import PROMOTED_INO, RESERVED_NAME, ROOT_INO, TRASH_INO
from tests.support.namespace import Namespace
from tests.support.t12 import saves
from tests.support.t12.rounds import Loss
from tests.support.t12.saves import EMPTY, Entry, Node, Operation, Tree
from tests.support.volumes import query

_BESIDE = re.compile(r"\.before-\d{8}T\d{6}Z(-\d+)?$")
KINDS = {InodeKind.REGULAR: "file", InodeKind.SYMLINK: "link", InodeKind.DIRECTORY: "dir"}


class Restored(NamedTuple):
    """What has a name in the restored namespace."""

    names: dict[str, tuple[int, Entry]]
    """What clients see: the inode and what it is, by path."""
    attrs: dict[int, Attr]
    """The attributes of all files, also of those in the trash and of promotions."""
    promoted: dict[str, int]
    """The inodes of the files of promotions, by path below all promotions."""


def restored(settings: Settings, namespace: Namespace) -> Restored:
    """Return what has a name."""
    names, attrs, promoted = {}, {}, {}
    for path, attr in _walk(namespace, ROOT_INO, ""):
        names[path] = attr.ino, _entry(namespace, attr)
        attrs[attr.ino] = attr
    # No listing shows the trash.
    # Promotions are made there too.
    entries = "SELECT ino FROM dirent WHERE parent = :trash AND ino NOT IN (SELECT copy FROM"
    for (ino,) in query(settings, f"{entries} promotion_member)", trash=TRASH_INO):
        attrs[ino] = namespace.getattr(ino)
        if attrs[ino].kind == InodeKind.DIRECTORY:
            attrs |= {attr.ino: attr for _path, attr in _walk(namespace, ino, "")}
    for path, attr in _walk(namespace, PROMOTED_INO, ""):
        attrs[attr.ino] = attr
        if attr.kind == InodeKind.REGULAR:
            promoted[path] = attr.ino
    files = {ino: attr for ino, attr in attrs.items() if attr.kind == InodeKind.REGULAR}
    return Restored(names, files, promoted)


def _walk(namespace: Namespace, directory: int, above: str) -> Iterator[tuple[str, Attr]]:
    cookie = 0
    while entries := namespace.readdir(directory, cookie, 100):
        cookie = entries[-1].cookie
        for entry in entries:
            if directory == ROOT_INO and entry.name == RESERVED_NAME:
                continue
            path = above + entry.name.decode()
            yield path, entry.attr
            if entry.attr.kind == InodeKind.DIRECTORY:
                yield from _walk(namespace, entry.attr.ino, f"{path}/")


def _entry(namespace: Namespace, attr: Attr) -> Entry:
    kind = KINDS[InodeKind(attr.kind)]
    target = namespace.readlink(attr.ino).decode() if kind == "link" else ""
    xattrs = tuple(
        (name.decode(), namespace.getxattr(ROOT_CRED, attr.ino, name).decode())
        for name in namespace.listxattr(attr.ino)
        if name.startswith(b"user.")
    )
    return Entry(kind, attr.mode, attr.uid, attr.gid, target, xattrs)


@dataclass
class Contents:
    """What the bucket had of each file at the loss."""

    best: dict[int, int] = field(default_factory=dict)
    """The number of the newest content, by inode."""
    lies: list[str] = field(default_factory=list)
    """Objects that are no version of their file."""


def contents_of(loss: Loss) -> Contents:
    """Return what the bucket had."""
    found = Contents()
    nodes = {node.ino: node for node in _nodes(loss.operations)}
    for key, stored in loss.objects.items():
        number = saves.number_of(stored.body)
        if key.startswith(".spillway/promoted/"):
            continue
        node = nodes.get(stored.ino or 0)
        if number is None or node is None or number not in node.contents:
            found.lies.append(f"{key} of inode {stored.ino}: {stored.body[:12]!r}")
            continue
        found.best[node.ino] = max(found.best.get(node.ino, 0), number)
    return found


def _nodes(operations: Sequence[Operation]) -> list[Node]:
    """Return all inodes that there ever were, as they were last."""
    tree = Tree()
    nodes: dict[int, Node] = {}
    for one in operations:
        tree.apply(one)
        if one.name in ("mkdir", "create", "symlink"):
            nodes[one.number] = tree.names[one.arguments[0]]
    return list(nodes.values())


class NamesComparison:
    """Compares the restored names with the moments of the log.

    Args:
        loss: with the log.
        found: the restored names.
    """

    def __init__(self, loss: Loss, found: Restored) -> None:
        self._operations = loss.operations
        self._unsettled = loss.unsettled
        self._objects = loss.objects
        # The key of an object that was sent while its file was renamed is the former path, and the
        # comparison with the bucket takes it for the newer one.
        self._former = {
            path: ino
            for path, (ino, _entry) in found.names.items()
            if path in loss.objects and loss.objects[path].ino == ino
        }
        self._found = found
        self._inos = {node.number: node.ino for node in _nodes(loss.operations)}
        self._numbers = {ino: number for number, ino in self._inos.items() if ino}
        self.first = sum(
            1
            for one in loss.operations
            if one.acked_ns is not None and one.acked_ns < loss.shown.as_of_ns
        )
        """The names must have the first operations, this many."""

    def wrong(self) -> list[str]:
        """Return what is wrong with the names: nothing if they are those of a moment."""
        moments = list(saves.moments(self._operations, self.first))
        least: list[str] | None = None
        for at, (count, tree) in enumerate(moments):
            wrong = self._wrong_at(tree, [later for _, later in moments[at:]], count)
            if not wrong:
                return []
            if least is None or len(wrong) < len(least):
                least = [f"after {count} of {len(self._operations)} operations:", *wrong]
        assert least is not None
        return least

    def _wrong_at(self, tree: Tree, later: Sequence[Tree], count: int) -> list[str]:
        touched = self._touched(tree, count)
        ways: dict[int, set[str]] = defaultdict(set)
        for one in later:
            for path, node in one.names.items():
                ways[node.number].add(path)
                touched |= {node.number} - {known.number for known in tree.names.values()}
        wrong = []
        for path, node in tree.names.items():
            ino = self._inos[node.number]
            if node.entry.kind == "file" and node.number in touched:
                if ino not in self._found.attrs:
                    wrong.append(f"{path} is gone, and touched later")
            elif self._found.names.get(path) != (ino, node.entry) and not (
                node.entry.kind == "file"
                and self._found.names.get(path, (0,))[0] != ino
                and (ino in self._former.values() or self._is_set_beside(path))
            ):
                wrong.append(f"{path} is {self._found.names.get(path)}, not {(ino, node.entry)}")
        for path, (ino, entry) in self._found.names.items():
            if path in tree.names and self._inos[tree.names[path].number] == ino:
                continue
            number = self._numbers.get(ino)
            if ino in self._unsettled or self._former.get(path) == ino:
                continue
            if entry.kind == "dir" and any(one.startswith(f"{path}/") for one in self._former):
                continue
            if entry.kind == "dir" and any(p.startswith(f"{path}/") for p in _all(later)):
                continue
            # A file that another one had replaced in the bucket is set beside that.
            was = _BESIDE.sub("", path)
            is_at = was in tree.names and self._inos[tree.names[was].number] == ino
            if is_at and self._is_set_beside(was):
                continue
            if number is None or number not in touched or was not in ways[number]:
                wrong.append(f"{path} came back: inode {ino}, {entry}; {self._where(ino)}")
        return wrong

    def _where(self, ino: int) -> str:
        """Return where the bucket had a file."""
        return f"in the bucket at {[key for key, one in self._objects.items() if one.ino == ino]}"

    def _is_set_beside(self, path: str) -> bool:
        """Return whether a path has an unsettled file again, which the bucket has there."""
        ino, _entry = self._found.names.get(path, (0, None))
        return ino in self._unsettled and path in self._objects and self._objects[path].ino == ino

    def _touched(self, tree: Tree, count: int) -> set[int]:
        """Return what later operations changed."""
        now, touched = tree.copy(), set()
        for one in self._operations[count:]:
            touched |= now.touched(one)
            now.apply(one)
        return touched


def _all(trees: Sequence[Tree]) -> set[str]:
    return {path for tree in trees for path in tree.names}


class Report(NamedTuple):
    """What the restore said, by inode."""

    lost: set[int]
    older: set[int]


def report_of(namespace: Namespace, said: dict[str, Any]) -> Report:
    """Return what a restore said."""
    lost = {_find(namespace, entry["path"]) for entry in said["lost"]}
    return Report(lost, {_find(namespace, path) for path in said["older"]})


def _find(namespace: Namespace, path: str) -> int:
    attr = namespace.getattr(ROOT_INO)
    for name in path.strip("/").split("/"):
        attr = namespace.lookup(attr.ino, name.encode(), is_gateway=True)
    return attr.ino


def wrong_report(loss: Loss, found: Restored, contents: Contents, said: Report) -> list[str]:
    """Return where the report of what is lost is wrong."""
    of_job = {ino for ino in found.attrs if ino not in found.promoted.values()}
    expected = {ino for ino in of_job if ino not in contents.best}
    silent = expected - said.lost - _still_empty(loss, found)
    wrong = [f"inode {ino} is lost, and not named: {found.attrs[ino]}" for ino in sorted(silent)]
    spared = (said.lost - expected) & of_job
    wrong += [f"inode {ino} is named as lost, and is not" for ino in sorted(spared)]
    sure, possible = _older(loss, contents)
    missing = (sure & of_job) - said.older
    wrong += [f"inode {ino} is older, and not named" for ino in sorted(missing)]
    wrong += [f"inode {ino} is not older" for ino in sorted((said.older & of_job) - possible)]
    return wrong


def _still_empty(loss: Loss, found: Restored) -> set[int]:
    """Return the inodes that had no bytes yet at the time of the names, and have none.

    The object of such a file may be gone since: nothing is lost with it, and it is sent again.
    """
    written = {node.ino for node in _nodes(_known(loss)) if node.contents[-1:] not in ([], [EMPTY])}
    return {ino for ino, attr in found.attrs.items() if not attr.size} - written


def _known(loss: Loss) -> list[Operation]:
    """Return the operations that the names must have."""
    return [one for one in loss.operations if one.acked_ns and one.acked_ns < loss.shown.as_of_ns]


def _older(loss: Loss, contents: Contents) -> tuple[set[int], set[int]]:
    """Return the inodes that were written again before the names and not sent since, and those of
    which that may be so."""
    last = {one.ino: one.contents[-1] for one in _nodes(loss.operations) if one.contents}
    before = {node.ino: node.contents for node in _nodes(_known(loss))}
    sure = {
        ino
        for ino, best in contents.best.items()
        if any(number > best for number in before.get(ino, ()))
    }
    return sure, {ino for ino, best in contents.best.items() if best < last[ino]}


def promised(loss: Loss, found: Restored) -> list[str]:
    """Return which files that status showed as durable are not there, or lost."""
    nodes = {node.ino: node for node in _nodes(loss.operations)}
    gone = []
    tree = saves.replayed(loss.operations)
    still = {node.ino: path for path, node in tree.names.items()}
    for ino in loss.shown.durable & still.keys() & nodes.keys():
        if ino not in found.attrs:
            gone.append(f"{still[ino]} (inode {ino}) was durable, and is gone")
    return gone


def durable_content(loss: Loss) -> dict[int, int]:
    """Return the number of the content that each durable file had at least, by inode."""
    tree = saves.replayed(
        [one for one in loss.operations if one.acked_ns and one.acked_ns < loss.shown.before_ns]
    )
    return {
        node.ino: node.contents[-1]
        for node in tree.names.values()
        if node.ino in loss.shown.durable and node.contents
    }
