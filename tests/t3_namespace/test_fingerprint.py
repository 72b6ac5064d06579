"""The fingerprint of a tree: each change shows, and no other change makes up for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from gateway.common.types import ROOT_CRED, Sealed, SetAttr
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.db.models import ROOT_INO
from gateway.namespace import fingerprint
from gateway.namespace.content import CRASH_CHANGE_STEP
from tests.support.namespace import Namespace
from tests.support.volumes import query

Tree = dict[int, int]
"""``change`` by inode number. The first one is the directory of all others."""


def linear(tree: Tree) -> int:
    """Return what a sum of terms gives that are linear in ``change``."""
    total = sum(change % 67_108_859 * (ino % 8191 + 1) for ino, change in tree.items())
    return total * 1_000_003 + len(tree)


def sums(tree: Tree) -> tuple[int, ...]:
    """Return what the database computes of a tree."""
    return (
        *(
            sum(fingerprint.term(*one, *field) for one in tree.items())
            for field in fingerprint.FIELDS
        ),
        len(tree),
    )


def changed(tree: Tree, top: int, ino: int, change: int) -> Tree:
    """Return a tree in which an inode has another ``change`` (0: it is gone).

    Args:
        top: the directory, which changes if the inode comes or goes.
    """
    after = {**tree, ino: change} if change else {k: v for k, v in tree.items() if k != ino}
    return {**after, top: after[top] + (len(after) != len(tree))}


def changes(tree: Tree, top: int) -> Iterator[tuple[int, int]]:
    """Yield what clients may do to one inode: its number, and the ``change`` that it has then."""
    for ino, change in tree.items():
        if ino != top:
            yield from ((ino, 0), *((ino, change + more) for more in (1, 2, 3, CRASH_CHANGE_STEP)))
    yield from ((ino, change) for ino in range(top + 50, top + 150) for change in (1, 2))


def cancelling(number: Callable[[Tree], object], tree: Tree, top: int) -> int:
    """Return how many pairs of changes leave a number as it is."""
    before = number(tree)
    pairs = combinations(changes(tree, top), 2)
    return sum(
        number(changed(changed(tree, top, *one), top, *two)) == before
        for one, two in pairs
        if one[0] != two[0]
    )


def test_no_two_changes_cancel() -> None:
    tree = {10: 6, **{ino: 2 + ino % 3 for ino in range(11, 41)}}
    assert cancelling(linear, tree, 10) > 10
    assert cancelling(sums, tree, 10) == 0


def test_a_difference_does_not_make_up_for_the_same_one_elsewhere() -> None:
    """Neither of numbers nor of ``change``: files that were made one after the other, and changed
    as often, differ by the same from each other."""
    for ino in range(100, 1100):
        assert sums({ino: 2, ino + 3: 2}) != sums({ino + 1: 2, ino + 2: 2})
        assert sums({ino: 2, ino + 1: 5}) != sums({ino: 3, ino + 1: 4})


numbers = st.integers(2, 1 << 40)


@given(st.dictionaries(numbers, numbers, min_size=2), st.dictionaries(numbers, numbers, min_size=2))
def test_two_trees_differ(one: Tree, two: Tree) -> None:
    assert (sums(one) == sums(two)) == (one == two)


@given(numbers, numbers, st.integers(1, 1 << 34))
def test_a_term_never_comes_back(ino: int, change: int, more: int) -> None:
    assert sums({ino: change}) != sums({ino: change + more})
    assert sums({ino: change}) != sums({ino + more: change})


def number(settings: Settings, ino: int) -> int:
    with closing(Database(settings.database_url)) as database, database.reading() as session:
        return fingerprint.of(session, ino).number


def test_a_file_that_takes_the_place_of_another_one_is_seen(
    namespace: Namespace, settings: Settings
) -> None:
    """With numbers that a sum of linear terms does not see."""
    top, other = (
        namespace.mkdir(ROOT_CRED, ROOT_INO, name, SetAttr(mode=0o755)).ino
        for name in (b"top", b"other")
    )
    old = namespace.create(ROOT_CRED, top, b"f", SetAttr(), for_writing=False).ino
    new = namespace.create(ROOT_CRED, other, b"f", SetAttr(), for_writing=False).ino
    weight = {ino: ino % 8191 + 1 for ino in (top, old, new)}
    # Both names of the directory move its change, and the rename moves that of the file.
    moved = next(n for n in range(2, 9000) if not (2 * weight[top] + n * weight[new]) % weight[old])
    for ino, change in (
        (new, moved - 1),
        (old, (2 * weight[top] + moved * weight[new]) // weight[old]),
    ):
        query(settings, "UPDATE inode SET change = :n WHERE ino = :ino", n=change, ino=ino)

    def tree() -> Tree:
        asked = "SELECT ino, change FROM inode WHERE ino = :t OR ino IN (SELECT ino FROM dirent"
        return dict(query(settings, f"{asked} WHERE parent = :t)", t=top))

    before, was = number(settings, top), linear(tree())
    namespace.remove(ROOT_CRED, top, b"f")
    namespace.rename(ROOT_CRED, other, b"f", top, b"f")
    assert linear(tree()) == was
    assert number(settings, top) != before


def test_each_change_is_seen(namespace: Namespace, settings: Settings) -> None:
    top = namespace.mkdir(ROOT_CRED, ROOT_INO, b"top", SetAttr(mode=0o755)).ino
    deep = namespace.mkdir(ROOT_CRED, top, b"deep", SetAttr(mode=0o755)).ino
    file = namespace.create(ROOT_CRED, deep, b"f", SetAttr(mode=0o644), for_writing=False).ino
    done: list[Callable[[], object]] = [
        lambda: namespace.open_write(file),
        lambda: namespace.seal(file, Sealed(1, 512, 1, 1)),
        lambda: namespace.setattr(file, SetAttr(mode=0o600)),
        lambda: namespace.setattr(top, SetAttr(mode=0o700)),
        lambda: namespace.setxattr(ROOT_CRED, file, b"a", b"b"),
        lambda: namespace.link(ROOT_CRED, file, ROOT_INO, b"elsewhere"),
        lambda: namespace.remove(ROOT_CRED, ROOT_INO, b"elsewhere"),
        lambda: namespace.rename(ROOT_CRED, deep, b"f", deep, b"g"),
        lambda: namespace.rename(ROOT_CRED, deep, b"g", top, b"g"),
        lambda: namespace.create(ROOT_CRED, deep, b"new", SetAttr()),
        lambda: namespace.remove(ROOT_CRED, deep, b"new"),
        lambda: namespace.rename(ROOT_CRED, ROOT_INO, b"top", ROOT_INO, b"other"),
    ]
    seen = {number(settings, top)}
    for count, change in enumerate(done, 2):
        change()
        seen.add(number(settings, top))
        assert len(seen) == count
        assert 0 < number(settings, top) < 1 << 63
