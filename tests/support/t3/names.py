"""Users, and changes of names in their name, for tests of names."""

from __future__ import annotations

from gateway.common.types import ROOT_CRED, Attr, Cred, SetAttr
from tests.support.namespace import Namespace

ROOT = 2


ALICE = Cred(1000, 1000, (1000, 5000))


BOB = Cred(1001, 1001)


def mkdir(ns: Namespace, name: bytes, parent: int = ROOT, mode: int = 0o777) -> Attr:
    return ns.mkdir(ROOT_CRED, parent, name, SetAttr(mode=mode))


def create(ns: Namespace, name: bytes, parent: int = ROOT, cred: Cred = ROOT_CRED) -> Attr:
    return ns.create(cred, parent, name, SetAttr(mode=0o644))


def names(ns: Namespace, parent: int) -> list[bytes]:
    return [entry.name for entry in ns.readdir(parent, 0, 1000)]
