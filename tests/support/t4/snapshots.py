"""Files that stay open while they are written, for tests of snapshots."""

from __future__ import annotations

from pathlib import Path

from gateway.common.types import ROOT_CRED, Attr, SetAttr
from tests.support.drainsite import Site


def opened(site: Site, path: str) -> tuple[Attr, Path]:
    """Make a file that stays open. Returns its attributes and its data file."""
    parent, name = site.split(path)
    attr = site.namespace.create(ROOT_CRED, parent, name, SetAttr(mode=0o644))
    data = site.namespace.files.path(attr.ino, attr.epoch)
    data.touch()
    return attr, data


def append(data: Path, more: bytes) -> None:
    with data.open("ab", buffering=0) as file:
        file.write(more)
