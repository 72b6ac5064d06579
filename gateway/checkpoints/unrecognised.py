"""Finds directories that look like checkpoints, and that no rule knows.

No policy keeps or deletes them, no receipt tells of them, and nothing says when the bucket has them
as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gateway.checkpoints import statements as own
from gateway.checkpoints.catalogue import PAGE, Catalogue
from gateway.checkpoints.content import TENSORS
from gateway.checkpoints.facts import Found, Parts
from gateway.checkpoints.texts import entry_of
from gateway.checkpoints.tree import Node
from gateway.db.models import ROOT_INO
from gateway.types import Extent, Kind

ENDS = (*TENSORS, b".distcp", b".npz", b".h5", b".msgpack", b".gguf", b".onnx", b".tensors")


class Unrecognised(NamedTuple):
    """A directory with files of tensors that belong to no checkpoint."""

    path: bytes
    """Path below the export's root."""
    files: int
    """The number of such files directly in it."""
    size: int
    """Bytes of them."""
    first: bytes
    """The first name."""


def unrecognised(catalogue: Catalogue) -> Iterator[Unrecognised]:
    """Yield the directories, each before those in it. It reads all names that are in no checkpoint,
    a page in each transaction. Raises TryAgain."""
    yield from _inside(catalogue, (), ROOT_INO, None)


def _inside(
    catalogue: Catalogue, parts: Parts, directory: int, found: Found | None
) -> Iterator[Unrecognised]:
    after = b""
    below: list[tuple[Parts, int, Found | None]] = []
    names: list[bytes] = []
    size = 0
    while True:
        with catalogue.viewing() as view:
            rows = view.session.all(own.ENTRIES, parent=directory, after=after, most=PAGE)
            for row in rows:
                node = Node(view, (*parts, bytes(row[0])), directory, entry_of(row))
                is_directory = node.entry.kind == Kind.DIRECTORY
                # The files directly in a checkpoint are its members.
                inner = view.recognise(node) if is_directory or found is None else found
                if is_directory and (inner is None or inner.extent is not Extent.TREE):
                    below.append((node.parts, node.entry.ino, inner))
                elif not is_directory and inner is None and bytes(row[0]).endswith(ENDS):
                    names.append(bytes(row[0]))
                    size += node.entry.size
        if len(rows) < PAGE:
            break
        after = rows[-1][0]
    if names:
        yield Unrecognised(b"/".join(parts), len(names), size, names[0])
    for one in below:
        yield from _inside(catalogue, *one)
