"""Sequences that the property test found, shortened and named. Each asserts a rule."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.common import clock, errors
from gateway.common.types import ROOT_CRED, Cred, Sealed, SetAttr
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.namespace import fsck
from tests.support.namespace import Namespace

ROOT = 2
ALICE = Cred(1000, 1000)
FAR_NS = 4_000_000_000_000_000_000

Regression = Callable[[Namespace, Settings], None]


def a_new_file_cannot_be_given_away(ns: Namespace, settings: Settings) -> None:
    """Owner and group in OPEN or CREATE need the same privilege as chown()."""
    ns.setattr(ROOT, SetAttr(mode=0o777))
    for name, wanted in ((b"u", SetAttr(0o4755, uid=0)), (b"g", SetAttr(0o2755, gid=0))):
        with pytest.raises(errors.NotPermitted):
            ns.create(ALICE, ROOT, name, wanted)
        with pytest.raises(errors.NotPermitted):
            ns.mkdir(ALICE, ROOT, name, wanted)


def no_setgid_program_of_a_foreign_group(ns: Namespace, settings: Settings) -> None:
    """A creation clears the bit, as chmod() would, if the directory sets the file's group."""
    parent = ns.mkdir(ROOT_CRED, ROOT, b"d", SetAttr(mode=0o2777, gid=77)).ino
    assert ns.create(ALICE, parent, b"f", SetAttr(mode=0o2755)).mode == 0o755


def an_orphan_cannot_be_linked(ns: Namespace, settings: Settings) -> None:
    """The orphan is not stale: clients that have it open can still use it."""
    ino = ns.create(ROOT_CRED, ROOT, b"f", SetAttr(mode=0o644)).ino
    ns.remove(ROOT_CRED, ROOT, b"f")
    with pytest.raises(errors.NotFound):
        ns.link(ROOT_CRED, ino, ROOT, b"g")
    assert ns.getattr(ino).nlink == 0


def a_replaced_name_is_listed_once(ns: Namespace, settings: Settings) -> None:
    """POSIX rename(): the new name stays visible throughout."""
    for name in (b"latest", b"tmp"):
        ns.create(ROOT_CRED, ROOT, name, SetAttr(mode=0o644))
    (first,) = ns.readdir(ROOT, 0, 1)
    ns.rename(ROOT_CRED, ROOT, b"tmp", ROOT, b"latest")
    assert first.name == b"latest"
    assert ns.readdir(ROOT, first.cookie, 10) == []


def listing_on_in_a_removed_directory_is_stale(ns: Namespace, settings: Settings) -> None:
    """A listing of a deleted directory must not look complete."""
    ino = ns.mkdir(ROOT_CRED, ROOT, b"d", SetAttr(mode=0o755)).ino
    ns.remove(ROOT_CRED, ROOT, b"d")
    with pytest.raises(errors.Stale):
        ns.readdir(ino, 17, 10)


def reclaiming_what_has_a_name_spares_its_bytes(ns: Namespace, settings: Settings) -> None:
    attr = ns.create(ROOT_CRED, ROOT, b"f", SetAttr(mode=0o644))
    ns.files.path(attr.ino, attr.epoch).write_bytes(b"bytes")
    ns.reclaim(attr.ino, attr.epoch)
    ns.setattr(ROOT, SetAttr())  # the writer works in order
    assert ns.files.path(attr.ino, attr.epoch).read_bytes() == b"bytes"


def a_seal_takes_no_ctime_from_the_future(ns: Namespace, settings: Settings) -> None:
    """Clients can set mtime and never ctime."""
    ino = ns.create(ROOT_CRED, ROOT, b"f", SetAttr(mode=0o644)).ino
    ns.setattr(ino, SetAttr(mtime_ns=FAR_NS))
    sealed = ns.seal(ino, Sealed(1, 4096, FAR_NS, 1))
    assert sealed.mtime_ns == FAR_NS
    assert sealed.ctime_ns <= clock.now_ns()


def a_crash_keeps_the_mtime_of_what_was_not_written(ns: Namespace, settings: Settings) -> None:
    """A SETATTR that was answered survives, also of files that were open and not written."""
    new = ns.create(ROOT_CRED, ROOT, b"new", SetAttr(mode=0o644)).ino
    old = ns.create(ROOT_CRED, ROOT, b"old", SetAttr(mode=0o644)).ino
    ns.files.path(old, 0).write_bytes(b"bytes")
    ns.seal(old, Sealed(5, 4096, clock.now_ns(), 1))
    for ino in (new, old):
        ns.setattr(ino, SetAttr(mtime_ns=1))
    ns.open_write(old)
    ns.close()
    after = Namespace(settings)
    assert [after.getattr(ino).mtime_ns for ino in (new, old)] == [1, 1]
    after.close()


def a_directory_with_one_entry_is_not_empty(ns: Namespace, settings: Settings) -> None:
    """This holds also for a rename of that entry over the directory."""
    parent = ns.mkdir(ROOT_CRED, ROOT, b"d", SetAttr(mode=0o755)).ino
    ns.mkdir(ROOT_CRED, parent, b"only", SetAttr(mode=0o755))
    with pytest.raises(errors.NotEmpty):
        ns.rename(ROOT_CRED, parent, b"only", ROOT, b"d")
    assert ns.lookup(ROOT, b"d").ino == parent


def a_renamed_directory_leaves_nothing_behind(ns: Namespace, settings: Settings) -> None:
    """mkdir, rename and rmdir leave nothing that fsck reports."""
    ns.mkdir(ROOT_CRED, ROOT, b"d", SetAttr(mode=0o755))
    ns.rename(ROOT_CRED, ROOT, b"d", ROOT, b"e")
    ns.remove(ROOT_CRED, ROOT, b"e")
    database = Database(settings.database_url)
    assert fsck.check(database, ns.files) == []
    database.close()


REGRESSIONS: list[Regression] = [
    a_new_file_cannot_be_given_away,
    no_setgid_program_of_a_foreign_group,
    an_orphan_cannot_be_linked,
    a_replaced_name_is_listed_once,
    listing_on_in_a_removed_directory_is_stale,
    reclaiming_what_has_a_name_spares_its_bytes,
    a_seal_takes_no_ctime_from_the_future,
    a_crash_keeps_the_mtime_of_what_was_not_written,
    a_directory_with_one_entry_is_not_empty,
    a_renamed_directory_leaves_nothing_behind,
]
