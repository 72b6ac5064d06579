"""The promises of POSIX and RFC 8881 for create, link, remove, rename and readdir."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.common import errors
from gateway.common.types import LINK_MAX, ROOT_CRED, Attr, Cred, InodeKind, SetAttr
from gateway.config.settings import Settings
from gateway.db.writer import Operation
from gateway.namespace import attributes, rename
from gateway.namespace.names import remove
from tests.support.namespace import Namespace
from tests.support.t3.names import ALICE, BOB, ROOT, create, mkdir, names
from tests.support.volumes import forget_reserved, query


def test_create_gives_the_attributes_asked_for(namespace: Namespace) -> None:
    attr = namespace.create(ALICE, mkdir(namespace, b"d").ino, b"f", SetAttr(mode=0o4640, gid=5000))
    assert (attr.kind, attr.mode, attr.uid, attr.gid) == (InodeKind.REGULAR, 0o4640, 1000, 5000)
    assert (attr.nlink, attr.size) == (1, 0)
    assert namespace.getattr(attr.ino) == attr


def test_a_second_create_of_a_name_is_refused(namespace: Namespace) -> None:
    create(namespace, b"f")
    for again in (create, mkdir):
        with pytest.raises(errors.Exists):
            again(namespace, b"f")


def test_the_verifier_of_an_exclusive_create_survives_setattr(namespace: Namespace) -> None:
    attr = namespace.create(ROOT_CRED, ROOT, b"f", SetAttr(), verifier=b"12345678")
    namespace.setattr(attr.ino, SetAttr(atime_ns=1, mtime_ns=2))
    assert namespace.verifier(attr.ino) == b"12345678"
    assert namespace.verifier(create(namespace, b"g").ino) is None


@pytest.mark.parametrize(
    ("mode", "left"),
    [
        (0o6755, 0o755),
        (0o4755, 0o755),
        (0o6745, 0o2745),  # sgid without group execute is no privilege: mandatory locking
        (0o644, 0o644),
    ],
)
@pytest.mark.parametrize("wanted", [SetAttr(uid=1000), SetAttr(gid=5000), SetAttr(uid=0, gid=0)])
def test_a_new_owner_or_group_takes_the_privileges_of_a_file(
    namespace: Namespace, mode: int, left: int, wanted: SetAttr
) -> None:
    attr = create(namespace, b"f")
    namespace.setattr(attr.ino, SetAttr(mode=mode))
    assert namespace.setattr(attr.ino, wanted).mode == left
    # The same holds in one request, because the owner is applied after the mode.
    assert namespace.setattr(attr.ino, wanted._replace(mode=mode)).mode == left


@pytest.mark.parametrize(("mode", "left"), [(0o6755, 0o755), (0o2745, 0o2745), (0o644, 0o644)])
def test_a_write_takes_the_privileges_from_the_mode_of_its_transaction(
    namespace: Namespace, mode: int, left: int
) -> None:
    attr = create(namespace, b"f")
    namespace.setattr(attr.ino, SetAttr(mode=mode))
    done = namespace.run(attributes.setattr_, attr.ino, SetAttr(), loses_privileges=True)
    assert done.mode == left


def test_a_rename_moves_only_the_inode_that_the_client_looked_up(namespace: Namespace) -> None:
    def move(old: bytes, only: Attr) -> Attr:
        names = old, ROOT, b"third"
        return namespace.run(rename.rename, ROOT_CRED, ROOT, *names, 0, only=only.ino)[0]

    first = create(namespace, b"first")
    second = create(namespace, b"second")
    namespace.rename(ROOT_CRED, ROOT, b"second", ROOT, b"first")
    before = namespace.getattr(ROOT)
    with pytest.raises(errors.TryAgain):
        move(b"first", only=first)
    assert namespace.getattr(ROOT) == before
    assert move(b"first", only=second).ino == second.ino
    with pytest.raises(errors.NotFound):
        move(b"first", only=second)


def test_directories_keep_their_bits_with_a_new_owner(namespace: Namespace) -> None:
    attr = mkdir(namespace, b"d", mode=0o6777)
    assert namespace.setattr(attr.ino, SetAttr(uid=1000, gid=5000)).mode == 0o6777


def test_an_undone_create_removes_nothing_of_anybody_else(namespace: Namespace) -> None:
    def undo(attr: Attr) -> None:
        operation = Operation(remove, ROOT_CRED, ROOT, b"f", only=(attr.ino, attr.change))
        namespace.run_together([operation])
        operation.outcome()

    ours = create(namespace, b"f")
    namespace.rename(ROOT_CRED, ROOT, b"f", ROOT, b"away")
    theirs = create(namespace, b"f")
    with pytest.raises(errors.NotFound):
        undo(ours)
    assert namespace.lookup(ROOT, b"f") == theirs
    written = namespace.open_write(theirs.ino)
    with pytest.raises(errors.NotFound):
        undo(theirs)
    assert namespace.lookup(ROOT, b"f") == written
    undo(written)
    assert names(namespace, ROOT) == [b"away"]


def test_setgid_directories_hand_on_their_group(namespace: Namespace) -> None:
    parent = namespace.mkdir(ROOT_CRED, ROOT, b"d", SetAttr(mode=0o2777, gid=77))
    assert create(namespace, b"f", parent.ino, ALICE).gid == 77
    below = namespace.mkdir(ALICE, parent.ino, b"sub", SetAttr(mode=0o755))
    assert (below.gid, below.mode) == (77, 0o2755)


@pytest.mark.parametrize("name", [b"", b".", b"..", b"a/b", b"a\0b"])
def test_impossible_names_are_refused(namespace: Namespace, name: bytes) -> None:
    with pytest.raises(errors.InvalidArgument):
        create(namespace, name)


def test_names_are_bytes_up_to_255(namespace: Namespace) -> None:
    name = bytes(set(range(1, 256)) - {ord("/")})
    attr = create(namespace, name)
    assert namespace.lookup(ROOT, name).ino == attr.ino
    assert names(namespace, ROOT) == [name]
    for call in (create, mkdir, lambda ns, n: ns.lookup(ROOT, n)):
        with pytest.raises(errors.NameTooLong):
            call(namespace, b"x" * 256)


def test_lookup_tells_missing_from_misplaced(namespace: Namespace) -> None:
    attr = create(namespace, b"f")
    with pytest.raises(errors.NotFound):
        namespace.lookup(ROOT, b"g")
    with pytest.raises(errors.NotADirectory):
        namespace.lookup(attr.ino, b"g")
    with pytest.raises(errors.Stale):
        namespace.lookup(987_654, b"g")


def test_parents(namespace: Namespace) -> None:
    outer = mkdir(namespace, b"a")
    inner = mkdir(namespace, b"b", outer.ino)
    assert namespace.lookup_parent(inner.ino).ino == outer.ino
    assert namespace.lookup_parent(outer.ino).ino == ROOT
    assert namespace.lookup_parent(ROOT).ino == ROOT
    with pytest.raises(errors.NotADirectory):
        namespace.lookup_parent(create(namespace, b"f").ino)


def test_symlinks(namespace: Namespace) -> None:
    attr = namespace.symlink(ROOT_CRED, ROOT, b"s", b"../\xff where", SetAttr(mode=0o777))
    assert (attr.kind, attr.size) == (InodeKind.SYMLINK, 10)
    assert namespace.readlink(attr.ino) == b"../\xff where"
    with pytest.raises(errors.InvalidArgument):
        namespace.readlink(create(namespace, b"f").ino)
    with pytest.raises(errors.InvalidArgument):
        namespace.symlink(ROOT_CRED, ROOT, b"t", b"", SetAttr())
    with pytest.raises(errors.NameTooLong):
        namespace.symlink(ROOT_CRED, ROOT, b"t", b"x" * 4096, SetAttr())


def test_device_nodes(namespace: Namespace) -> None:
    parent = mkdir(namespace, b"d").ino
    fifo = namespace.mknod(ALICE, parent, b"p", InodeKind.FIFO, 0, SetAttr(mode=0o600))
    assert fifo.kind == InodeKind.FIFO
    node = namespace.mknod(ROOT_CRED, parent, b"n", InodeKind.BLOCK, 8 << 32 | 1, SetAttr())
    assert namespace.getattr(node.ino).rdev == 8 << 32 | 1
    with pytest.raises(errors.NotPermitted):
        namespace.mknod(ALICE, parent, b"c", InodeKind.CHARACTER, 1, SetAttr())
    with pytest.raises(errors.InvalidArgument):
        namespace.mknod(ROOT_CRED, parent, b"r", InodeKind.REGULAR, 0, SetAttr())


def test_hard_links_share_the_inode(namespace: Namespace) -> None:
    attr = create(namespace, b"f")
    linked = namespace.link(ROOT_CRED, attr.ino, ROOT, b"g")
    assert (linked.ino, linked.nlink) == (attr.ino, 2)
    assert linked.change > attr.change
    assert namespace.remove(ROOT_CRED, ROOT, b"f").nlink == 1
    assert namespace.lookup(ROOT, b"g").nlink == 1


def test_links_have_limits(namespace: Namespace) -> None:
    directory = mkdir(namespace, b"d")
    with pytest.raises(errors.NotPermitted):
        namespace.link(ROOT_CRED, directory.ino, ROOT, b"e")
    attr = create(namespace, b"f")
    with pytest.raises(errors.Exists):
        namespace.link(ROOT_CRED, attr.ino, ROOT, b"d")
    namespace.remove(ROOT_CRED, ROOT, b"f")
    with pytest.raises(errors.NotFound):
        namespace.link(ROOT_CRED, attr.ino, ROOT, b"again")
    assert LINK_MAX >= 32_000


def test_directories_count_their_subdirectories(namespace: Namespace) -> None:
    outer = mkdir(namespace, b"a")
    other = mkdir(namespace, b"b")
    mkdir(namespace, b"x", outer.ino)
    assert namespace.getattr(outer.ino).nlink == 3
    namespace.rename(ROOT_CRED, outer.ino, b"x", other.ino, b"x")
    assert namespace.getattr(outer.ino).nlink == 2
    assert namespace.getattr(other.ino).nlink == 3
    namespace.remove(ROOT_CRED, other.ino, b"x")
    assert namespace.getattr(other.ino).nlink == 2


def test_only_empty_directories_go(namespace: Namespace) -> None:
    outer = mkdir(namespace, b"a")
    create(namespace, b"f", outer.ino)
    with pytest.raises(errors.NotEmpty):
        namespace.remove(ROOT_CRED, ROOT, b"a")
    namespace.remove(ROOT_CRED, outer.ino, b"f")
    namespace.remove(ROOT_CRED, ROOT, b"a")
    for gone in (
        lambda: namespace.getattr(outer.ino),
        lambda: create(namespace, b"g", outer.ino),
        lambda: namespace.readdir(outer.ino, 0, 10),
    ):
        with pytest.raises(errors.Stale):
            gone()


Change = Callable[[Namespace, int], object]
CHANGES: dict[str, Change] = {
    "create": lambda ns, d: create(ns, b"new", d),
    "mkdir": lambda ns, d: mkdir(ns, b"new", d),
    "symlink": lambda ns, d: ns.symlink(ROOT_CRED, d, b"new", b"x", SetAttr()),
    "remove": lambda ns, d: ns.remove(ROOT_CRED, d, b"old"),
    "rename": lambda ns, d: ns.rename(ROOT_CRED, d, b"old", d, b"new"),
    "link": lambda ns, d: ns.link(ROOT_CRED, ns.lookup(d, b"old").ino, d, b"new"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_every_entry_change_moves_the_directory(namespace: Namespace, change: Change) -> None:
    directory = mkdir(namespace, b"d")
    create(namespace, b"old", directory.ino)
    before = namespace.getattr(directory.ino)
    change(namespace, directory.ino)
    after = namespace.getattr(directory.ino)
    assert after.change > before.change
    assert after.mtime_ns > before.mtime_ns
    assert after.ctime_ns > before.ctime_ns


def test_readdir_goes_on_after_any_cookie(namespace: Namespace) -> None:
    parent = mkdir(namespace, b"d").ino
    made = [b"f%03d" % i for i in range(50)]
    for name in made:
        create(namespace, name, parent)
    found: list[bytes] = []
    cookie = 0
    while batch := namespace.readdir(parent, cookie, 7):
        found += [entry.name for entry in batch]
        cookie = batch[-1].cookie
        # The removal of listed entries must not shift the entries that follow.
        namespace.remove(ROOT_CRED, parent, batch[0].name)
    assert found == made


def test_a_renamed_entry_gets_a_new_cookie(namespace: Namespace) -> None:
    create(namespace, b"a")
    before = namespace.readdir(ROOT, 0, 10)[0].cookie
    namespace.rename(ROOT_CRED, ROOT, b"a", ROOT, b"b")
    after = namespace.readdir(ROOT, 0, 10)[0].cookie
    assert after > before >= 3


class TestPermissions:
    """The namespace checks changes of a directory's entries; Ganesha checks everything else."""

    @pytest.fixture
    def closed(self, namespace: Namespace) -> int:
        directory = namespace.mkdir(ROOT_CRED, ROOT, b"d", SetAttr(mode=0o755, uid=1000))
        create(namespace, b"f", directory.ino, ALICE)
        return directory.ino

    @pytest.mark.parametrize(
        "act",
        [
            lambda ns, d, c: ns.create(c, d, b"x", SetAttr()),
            lambda ns, d, c: ns.mkdir(c, d, b"x", SetAttr()),
            lambda ns, d, c: ns.symlink(c, d, b"x", b"y", SetAttr()),
            lambda ns, d, c: ns.remove(c, d, b"f"),
            lambda ns, d, c: ns.remove(c, d, b"missing"),
            lambda ns, d, c: ns.rename(c, d, b"f", d, b"g"),
            lambda ns, d, c: ns.link(c, ns.lookup(d, b"f").ino, d, b"g"),
        ],
    )
    def test_write_permission_of_the_directory(
        self, namespace: Namespace, closed: int, act: Callable[[Namespace, int, Cred], object]
    ) -> None:
        with pytest.raises(errors.AccessDenied):
            act(namespace, closed, BOB)

    def test_groups_count(self, namespace: Namespace) -> None:
        parent = namespace.mkdir(ROOT_CRED, ROOT, b"d", SetAttr(mode=0o770, gid=5000)).ino
        create(namespace, b"f", parent, ALICE)
        with pytest.raises(errors.AccessDenied):
            create(namespace, b"g", parent, BOB)

    def test_sticky_directories_protect_the_owner(self, namespace: Namespace) -> None:
        parent = mkdir(namespace, b"tmp", mode=0o1777).ino
        create(namespace, b"f", parent, ALICE)
        create(namespace, b"mine", parent, BOB)
        with pytest.raises(errors.NotPermitted):
            namespace.remove(BOB, parent, b"f")
        with pytest.raises(errors.NotPermitted):
            namespace.rename(BOB, parent, b"mine", parent, b"f")
        namespace.rename(BOB, parent, b"mine", parent, b"free")
        namespace.remove(ALICE, parent, b"f")


def test_the_gateways_own_name_in_the_root_can_only_be_taken_away(
    namespace: Namespace, settings: Settings
) -> None:
    name = b".spillway"
    file, directory = create(namespace, b"f"), mkdir(namespace, b"d")
    forget_reserved(settings)
    for refused in (
        lambda: create(namespace, name),
        lambda: mkdir(namespace, name),
        lambda: namespace.symlink(ROOT_CRED, ROOT, name, b"d", SetAttr()),
        lambda: namespace.mknod(ROOT_CRED, ROOT, name, InodeKind.FIFO, 0, SetAttr()),
        lambda: namespace.link(ROOT_CRED, file.ino, ROOT, name),
        lambda: namespace.rename(ROOT_CRED, ROOT, b"f", ROOT, name),
        lambda: namespace.rename(ROOT_CRED, ROOT, b"d", ROOT, name),
    ):
        with pytest.raises(errors.ReadOnly):
            refused()
    create(namespace, name, directory.ino)
    # A version before this rule may have allowed a client to make the name.
    query(settings, "UPDATE dirent SET name = :name WHERE ino = :ino", name=name, ino=file.ino)
    namespace.rename(ROOT_CRED, ROOT, name, ROOT, b"g")
    assert namespace.lookup(ROOT, b"g").ino == file.ino
