"""Stores that keep objects as files have no object at a key that another key goes through.

rclone is one. There, what is at such a key must leave before anything is put below it.
"""

from __future__ import annotations

from tests.support.drainsite import Site


def settled(site: Site, expected: dict[str, bytes]) -> None:
    """Drain until nothing is left to do, and require what the bucket has."""
    for _ in range(4):
        site.drain()
    assert site.objects() == expected
    assert site.left() == []


def test_a_file_moves_into_a_directory_of_its_old_name(site: Site) -> None:
    site.write("m", b"data")
    site.drain()
    site.rename("m", "old")
    site.directory("m")
    site.rename("old", "m/w")
    settled(site, {"m/w": b"data"})


def test_a_file_takes_the_name_of_the_directory_that_it_was_in(site: Site) -> None:
    site.write("m/w", b"data")
    site.drain()
    site.rename("m/w", "old")
    site.rename("m", "empty")
    site.rename("old", "m")
    settled(site, {"m": b"data"})


def test_a_file_that_changes_in_the_directory_of_its_old_name(site: Site) -> None:
    site.write("m", b"data")
    site.drain()
    site.rename("m", "old")
    site.directory("m")
    site.rename("old", "m/w")
    site.write("m/w", b"newer data")
    settled(site, {"m/w": b"newer data"})


def test_a_new_file_below_the_old_name_of_a_held_one(site: Site) -> None:
    """The object of the held file waits elsewhere meanwhile."""
    site.write("m", b"first")
    site.drain()
    site.rename("m", "m.tmp")
    site.directory("m")
    site.write("m/w", b"second")
    for _ in range(3):
        site.drain()
    staged = f".spillway/staging/{site.attr('m.tmp').ino}"
    assert site.objects() == {staged: b"first", "m/w": b"second"}
    site.rename("m.tmp", "n")
    settled(site, {"n": b"first", "m/w": b"second"})


def test_two_files_that_each_move_below_the_old_name_of_the_other(site: Site) -> None:
    site.write("a", b"first")
    site.write("b", b"second")
    site.drain()
    site.rename("a", "x.tmp")
    site.rename("b", "y.tmp")
    site.directory("a")
    site.directory("b")
    site.rename("x.tmp", "b/first")
    site.rename("y.tmp", "a/second")
    settled(site, {"b/first": b"first", "a/second": b"second"})


def test_a_directory_of_the_name_of_a_file_that_was_deleted(site: Site) -> None:
    site.write("m", b"old")
    site.drain()
    site.unlink("m")
    site.directory("m")
    site.write("m/w", b"data")
    settled(site, {"m/w": b"data"})
