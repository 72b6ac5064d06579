"""Renames in all combinations of types: they replace, are refused, or change nothing."""

from __future__ import annotations

import pytest

from gateway.common import errors
from gateway.common.types import ROOT_CRED, Cred, InodeKind, SetAttr
from tests.support.namespace import Namespace
from tests.support.t3.names import ROOT, create, mkdir, names


def move(ns: Namespace, old: bytes, new: bytes) -> object:
    return ns.rename(ROOT_CRED, ROOT, old, ROOT, new)


def test_file_over_file_replaces_it(namespace: Namespace) -> None:
    moved, replaced = create(namespace, b"a"), create(namespace, b"b")
    attr, removed = namespace.rename(ROOT_CRED, ROOT, b"a", ROOT, b"b")
    assert attr.ino == moved.ino
    assert removed is not None
    assert (removed.ino, removed.nlink, removed.kind) == (replaced.ino, 0, InodeKind.REGULAR)
    assert names(namespace, ROOT) == [b"b"]
    assert namespace.lookup(ROOT, b"b").ino == moved.ino
    # The replaced inode stays for clients that have it open, until it is reclaimed.
    assert namespace.getattr(replaced.ino).nlink == 0


def test_directory_over_empty_directory(namespace: Namespace) -> None:
    moved = mkdir(namespace, b"a")
    mkdir(namespace, b"b")
    create(namespace, b"f", moved.ino)
    move(namespace, b"a", b"b")
    assert names(namespace, ROOT) == [b"b"]
    assert names(namespace, namespace.lookup(ROOT, b"b").ino) == [b"f"]
    assert namespace.getattr(ROOT).nlink == 3


def test_directory_over_full_directory_is_refused(namespace: Namespace) -> None:
    mkdir(namespace, b"a")
    create(namespace, b"f", mkdir(namespace, b"b").ino)
    with pytest.raises(errors.NotEmpty):
        move(namespace, b"a", b"b")
    assert names(namespace, ROOT) == [b"a", b"b"]


def test_types_must_match(namespace: Namespace) -> None:
    create(namespace, b"f")
    mkdir(namespace, b"d")
    with pytest.raises(errors.IsADirectory):
        move(namespace, b"f", b"d")
    with pytest.raises(errors.NotADirectory):
        move(namespace, b"d", b"f")


def test_onto_itself_and_onto_a_link_of_itself_do_nothing(namespace: Namespace) -> None:
    attr = create(namespace, b"f")
    namespace.link(ROOT_CRED, attr.ino, ROOT, b"g")
    before = namespace.getattr(ROOT)
    assert namespace.rename(ROOT_CRED, ROOT, b"f", ROOT, b"f")[1] is None
    assert namespace.rename(ROOT_CRED, ROOT, b"f", ROOT, b"g")[1] is None
    assert names(namespace, ROOT) == [b"f", b"g"]
    assert namespace.getattr(ROOT) == before


def test_a_directory_cannot_go_below_itself(namespace: Namespace) -> None:
    a = mkdir(namespace, b"a")
    b = mkdir(namespace, b"b", a.ino)
    c = mkdir(namespace, b"c", b.ino)
    for target in (a, b, c):
        with pytest.raises(errors.CrossesItself):
            namespace.rename(ROOT_CRED, ROOT, b"a", target.ino, b"x")
    with pytest.raises(errors.CrossesItself):
        # The error is not NotEmpty, although the replaced directory is not empty either.
        namespace.rename(ROOT_CRED, ROOT, b"a", a.ino, b"b")
    assert namespace.lookup(ROOT, b"a").ino == a.ino


def test_missing_sources_and_bad_parents(namespace: Namespace) -> None:
    attr = create(namespace, b"f")
    with pytest.raises(errors.NotFound):
        move(namespace, b"none", b"x")
    with pytest.raises(errors.NotADirectory):
        namespace.rename(ROOT_CRED, ROOT, b"f", attr.ino, b"x")
    with pytest.raises(errors.Stale):
        namespace.rename(ROOT_CRED, ROOT, b"f", 987_654, b"x")


def test_moving_a_directory_needs_write_permission_on_it(namespace: Namespace) -> None:
    open_dir = mkdir(namespace, b"open", mode=0o777)
    namespace.mkdir(ROOT_CRED, open_dir.ino, b"d", SetAttr(mode=0o755))
    target = mkdir(namespace, b"target", mode=0o777)
    bob = Cred(1001, 1001)
    with pytest.raises(errors.AccessDenied):
        namespace.rename(bob, open_dir.ino, b"d", target.ino, b"d")
    # A rename within one directory does not change the directory's "..".
    namespace.rename(bob, open_dir.ino, b"d", open_dir.ino, b"e")


def test_a_tree_moves_in_one_step(namespace: Namespace) -> None:
    tmp = mkdir(namespace, b"tmp-checkpoint-100")
    for rank in range(20):
        create(namespace, b"rank%d" % rank, tmp.ino)
    move(namespace, b"tmp-checkpoint-100", b"checkpoint-100")
    assert len(names(namespace, namespace.lookup(ROOT, b"checkpoint-100").ino)) == 20
    with pytest.raises(errors.NotFound):
        namespace.lookup(ROOT, b"tmp-checkpoint-100")
