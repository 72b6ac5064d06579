"""Extended attributes: the rules of RFC 8276 and xattr(7)."""

from __future__ import annotations

import pytest

from gateway.common import errors
from gateway.common.types import ROOT_CRED, Cred, Sealed, SetAttr
from gateway.config.settings import Settings
from gateway.namespace.names import VALUE_MAX_BYTES, SetXattrMode
from tests.support.namespace import Namespace
from tests.support.t3.names import ALICE, BOB, ROOT, create, mkdir
from tests.support.volumes import query


def test_values_come_back_and_change_moves(namespace: Namespace) -> None:
    attr = create(namespace, b"f")
    for value in (b"one", b"", b"\0\xff" * 1000):
        changed = namespace.setxattr(ROOT_CRED, attr.ino, b"key", value)
        assert namespace.getxattr(ROOT_CRED, attr.ino, b"key") == value
        assert changed.change > attr.change
        assert changed.ctime_ns > attr.ctime_ns
        assert changed.mtime_ns == attr.mtime_ns
        attr = changed
    assert namespace.listxattr(attr.ino) == [b"key"]
    namespace.removexattr(ROOT_CRED, attr.ino, b"key")
    assert namespace.listxattr(attr.ino) == []


def test_create_and_replace(namespace: Namespace) -> None:
    ino = mkdir(namespace, b"d").ino
    with pytest.raises(errors.NoAttribute):
        namespace.setxattr(ROOT_CRED, ino, b"k", b"v", SetXattrMode.REPLACE)
    namespace.setxattr(ROOT_CRED, ino, b"k", b"v", SetXattrMode.CREATE)
    with pytest.raises(errors.Exists):
        namespace.setxattr(ROOT_CRED, ino, b"k", b"w", SetXattrMode.CREATE)
    namespace.setxattr(ROOT_CRED, ino, b"k", b"w", SetXattrMode.REPLACE)
    assert namespace.getxattr(ROOT_CRED, ino, b"k") == b"w"


def test_what_is_missing(namespace: Namespace) -> None:
    ino = create(namespace, b"f").ino
    with pytest.raises(errors.NoAttribute):
        namespace.getxattr(ROOT_CRED, ino, b"k")
    with pytest.raises(errors.NoAttribute):
        namespace.removexattr(ROOT_CRED, ino, b"k")
    with pytest.raises(errors.Stale):
        namespace.listxattr(987_654)


def test_limits(namespace: Namespace) -> None:
    ino = create(namespace, b"f").ino
    namespace.setxattr(ROOT_CRED, ino, b"k", b"x" * VALUE_MAX_BYTES)
    with pytest.raises(errors.TooBig):
        namespace.setxattr(ROOT_CRED, ino, b"k", b"x" * (VALUE_MAX_BYTES + 1))
    for name in (b"", b"a\0b", b"x" * 256):
        with pytest.raises(errors.InvalidArgument):
            namespace.setxattr(ROOT_CRED, ino, name, b"v")
    with pytest.raises(errors.NoSpace):
        for index in range(300):
            namespace.setxattr(ROOT_CRED, ino, b"%03d" % index + b"n" * 250, b"")


@pytest.mark.parametrize("cred", [BOB, Cred(4, 5)])
def test_permissions(namespace: Namespace, cred: Cred) -> None:
    parent = mkdir(namespace, b"d").ino
    ino = namespace.create(ALICE, parent, b"f", SetAttr(mode=0o600)).ino
    namespace.setxattr(ALICE, ino, b"k", b"v")
    for act in (
        lambda: namespace.getxattr(cred, ino, b"k"),
        lambda: namespace.setxattr(cred, ino, b"k", b"w"),
        lambda: namespace.removexattr(cred, ino, b"k"),
    ):
        with pytest.raises(errors.AccessDenied):
            act()
    sticky = namespace.mkdir(ROOT_CRED, ROOT, b"tmp", SetAttr(mode=0o1777)).ino
    with pytest.raises(errors.NotPermitted):
        namespace.setxattr(cred, sticky, b"k", b"v")
    link = namespace.symlink(ROOT_CRED, ROOT, b"s", b"x", SetAttr(mode=0o777)).ino
    with pytest.raises(errors.NotPermitted):
        namespace.setxattr(ROOT_CRED, link, b"k", b"v")


def test_they_go_with_the_inode(namespace: Namespace, settings: Settings) -> None:
    file, directory = create(namespace, b"f"), mkdir(namespace, b"d")
    for attr in (file, directory):
        namespace.setxattr(ROOT_CRED, attr.ino, b"k", b"v")
    namespace.remove(ROOT_CRED, ROOT, b"f")
    namespace.remove(ROOT_CRED, ROOT, b"d")
    namespace.reclaim(file.ino, file.epoch)
    namespace.setattr(ROOT, SetAttr())
    assert query(settings, "SELECT count(*) FROM xattr") == [(0,)]


def test_the_gateways_names_say_what_the_bucket_has(
    namespace: Namespace, settings: Settings
) -> None:
    parent = mkdir(namespace, b"d").ino
    ino = create(namespace, b"f", parent).ino
    namespace.seal(ino, Sealed(0, 0, 1, 0))
    namespace.setxattr(ROOT_CRED, ino, b"key", b"v")
    assert namespace.listxattr(ino) == [b"key"]
    with pytest.raises(errors.NoAttribute):
        namespace.getxattr(ROOT_CRED, ino, b"spillway.state")
    query(settings, "UPDATE inode SET drained_version = content_version WHERE ino = :i", i=ino)
    query(settings, "INSERT INTO object VALUES (:i, 'd/f', 1, 0, 'tag', 'md5:0', 1, NULL)", i=ino)
    given = {b"state": b"durable", b"etag": b"tag", b"checksum": b"md5:0"}
    for name, value in given.items():
        assert namespace.getxattr(ROOT_CRED, ino, b"spillway." + name) == value
        with pytest.raises(errors.NotPermitted):
            namespace.setxattr(ROOT_CRED, ino, b"spillway." + name, b"mine")
        with pytest.raises(errors.NotPermitted):
            namespace.removexattr(ROOT_CRED, ino, b"spillway." + name)
    assert namespace.listxattr(ino) == [b"key", *sorted(b"spillway." + name for name in given)]
    # The object is not at the key of the path until the rename has reached the bucket.
    namespace.rename(ROOT_CRED, ROOT, b"d", ROOT, b"e")
    assert namespace.listxattr(ino) == [b"key"]
    query(settings, "DELETE FROM rekey")
    assert namespace.getxattr(ROOT_CRED, ino, b"spillway.state") == b"durable"
    namespace.open_write(ino)
    assert namespace.listxattr(ino) == [b"key"]
