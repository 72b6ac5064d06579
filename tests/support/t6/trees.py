"""Large trees of names, made at once while no server runs."""

from __future__ import annotations

from gateway.common.types import ROOT_CRED, InodeKind, SetAttr
from gateway.config.settings import Settings
from gateway.db.models import ROOT_INO
from gateway.db.writer import Operation
from gateway.namespace import names
from tests.support.namespace import Namespace

TOGETHER = 100
"""The names in a directory."""


def make_big(settings: Settings, names: int) -> None:
    """Make the directory "big" with directories of a hundred names. Every tenth name is a file with
    bytes. The others are symbolic links, which have no data file: ``rm`` removes all one by one."""
    namespace = Namespace(settings)
    try:
        top = namespace.mkdir(ROOT_CRED, ROOT_INO, b"big", SetAttr(mode=0o755)).ino
        for number in range(names // TOGETHER):
            _fill(namespace, namespace.mkdir(ROOT_CRED, top, b"d%d" % number, SetAttr()).ino)
    finally:
        namespace.close()
    Namespace(settings).close()  # a start seals the files


def _fill(namespace: Namespace, parent: int) -> None:
    generation = namespace.boot.generation
    made = []
    for number in range(TOGETHER):
        where = ROOT_CRED, parent, b"n%d" % number
        if number % 10:
            operation = Operation(names.symlink, *where, b"x", SetAttr(), generation=generation)
        else:
            operation = Operation(names.create, *where, SetAttr(), generation=generation)
        made.append(operation)
    namespace.run_together(made)
    for attr in (one.outcome() for one in made):
        if attr.kind == InodeKind.REGULAR:
            namespace.files.path(attr.ino, attr.epoch).write_bytes(b"bytes")
