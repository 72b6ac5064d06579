"""A CLOSE that waits for the bucket is answered only for the bytes that were closed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.common.types import ROOT_CRED, Attr, Sealed
from gateway.config.acknowledge import Acknowledge
from gateway.config.settings import Settings
from gateway.namespace import content
from gateway.namespace.content import CloseAnswer
from tests.support.namespace import Namespace
from tests.support.objects import record_object
from tests.support.t3.names import ROOT, create, mkdir
from tests.support.t3.residency import save
from tests.support.volumes import query

RULES = Acknowledge(({"path": "f"}, {"path": "g"}, {"path": "d"}), ["*.tmp"])


@pytest.fixture(autouse=True)
def rules(namespace: Namespace) -> None:
    namespace.acknowledge = RULES


Spoil = Callable[[Namespace, Settings, int], object]
SPOILS: dict[str, tuple[Spoil, CloseAnswer]] = {
    "nothing": (lambda ns, st, ino: None, CloseAnswer.STORED),
    "opened again": (lambda ns, st, ino: ns.open_write(ino), CloseAnswer.WAITS),
    "written again": (
        lambda ns, st, ino: (ns.open_write(ino), ns.seal(ino, Sealed(6, 4096, 78, 1))),
        CloseAnswer.WAITS,
    ),
    "opened and closed": (
        lambda ns, st, ino: (ns.open_write(ino), ns.seal(ino, Sealed(0, 0, 0, 0))),
        CloseAnswer.STORED,
    ),
    "not drained": (
        lambda ns, st, ino: query(st, "UPDATE inode SET drained_version = 0 WHERE ino = :i", i=ino),
        CloseAnswer.WAITS,
    ),
    "an object of another version": (
        lambda ns, st, ino: query(st, "UPDATE object SET content_version = 0"),
        CloseAnswer.WAITS,
    ),
    "indeterminate": (
        lambda ns, st, ino: query(
            st, "INSERT INTO indeterminate_write (key, ino, noted_ns) VALUES ('f', :i, 1)", i=ino
        ),
        CloseAnswer.WAITS,
    ),
    "damaged": (lambda ns, st, ino: ns.damaged(ino, "bytes are lost"), CloseAnswer.FAILED),
    "damaged and emptied": (lambda ns, st, ino: damage_and_empty(ns, ino), CloseAnswer.STORED),
    "renamed": (
        lambda ns, st, ino: ns.rename(ROOT_CRED, ROOT, b"f", ROOT, b"g"),
        CloseAnswer.WAITS,
    ),
    "renamed to a name that is held": (
        lambda ns, st, ino: ns.rename(ROOT_CRED, ROOT, b"f", ROOT, b"f.tmp"),
        CloseAnswer.LOCAL,
    ),
    "linked elsewhere": (
        lambda ns, st, ino: ns.link(ROOT_CRED, ino, ROOT, b"other"),
        CloseAnswer.STORED,
    ),
    "removed": (lambda ns, st, ino: ns.remove(ROOT_CRED, ROOT, b"f"), CloseAnswer.LOCAL),
}


def damage_and_empty(namespace: Namespace, ino: int) -> None:
    namespace.damaged(ino, "bytes are lost")
    namespace.whole(ino)


@pytest.mark.parametrize("spoil", SPOILS)
def test_what_a_close_says(namespace: Namespace, settings: Settings, spoil: str) -> None:
    attr = save(namespace, settings)
    change, said = SPOILS[spoil]
    change(namespace, settings, attr.ino)
    assert namespace.acknowledged(attr.ino) == said


def test_a_rename_above_is_waited_for(namespace: Namespace, settings: Settings) -> None:
    top = mkdir(namespace, b"d")
    deep = mkdir(namespace, b"deep", top.ino)
    file = create(namespace, b"x", deep.ino)
    namespace.seal(file.ino, Sealed(5, 4096, 77, 1))
    assert namespace.acknowledged(file.ino) == CloseAnswer.WAITS
    record_object(settings, file.ino, "d/deep/x")
    assert namespace.acknowledged(file.ino) == CloseAnswer.STORED
    namespace.rename(ROOT_CRED, top.ino, b"deep", top.ino, b"moved")
    assert namespace.acknowledged(file.ino) == CloseAnswer.WAITS


def test_what_a_client_waits_for_does_not_settle(namespace: Namespace, settings: Settings) -> None:
    hour_ns = 3600 * 10**9
    after = {}
    for name in (b"f", b"other"):
        attr: Attr = create(namespace, name)
        namespace.run(content.seal, attr.ino, Sealed(5, 4096, 77, 1), hour_ns, RULES)
        [(after[name],)] = query(
            settings, "SELECT drain_after_ns FROM inode WHERE ino = :i", i=attr.ino
        )
    assert after[b"other"] - after[b"f"] > hour_ns / 2
