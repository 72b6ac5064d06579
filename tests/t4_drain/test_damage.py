"""A file whose local bytes are known to be lost never reaches the bucket, closed or open."""

from __future__ import annotations

from functools import partial

from gateway.types import ROOT_CRED, SetAttr
from tests.support.waiting import until
from tests.t4_drain.site import Site

REASON = "fdatasync failed: Input/output error"


def test_a_file_whose_bytes_are_lost_is_not_uploaded(site: Site) -> None:
    ino = site.write("lost", b"what is left of it")
    site.namespace.damaged(ino, REASON)
    site.write("whole", b"all of it")
    site.drain()
    assert site.objects() == {"whole": b"all of it"}
    assert site.rows("SELECT count(*) FROM upload") == [(0,)]
    site.namespace.whole(ino)
    site.drain()
    assert set(site.objects()) == {"whole", "lost"}


def opened(site: Site, path: str, data: bytes) -> int:
    """Make and write a file that stays open. Returns its inode number."""
    parent, name = site.split(path)
    attr = site.namespace.create(ROOT_CRED, parent, name, SetAttr(mode=0o644))
    site.namespace.files.path(attr.ino, attr.epoch).write_bytes(data)
    return attr.ino


def has_object(site: Site, path: str) -> bool:
    return path in site.objects()


def test_an_open_file_whose_bytes_are_lost_gets_no_snapshot(site: Site) -> None:
    site.configure(max_open_age_seconds=0.3)
    site.namespace.damaged(opened(site, "run/lost.log", b"what is left of it"), REASON)
    with site.draining():
        # Open files are planned in the order of inode numbers, so the first one was skipped.
        for path in ("run/second.log", "run/third.log"):
            opened(site, path, b"all of it")
            until(partial(has_object, site, path), "a snapshot")
    assert set(site.objects()) == {"run/second.log", "run/third.log"}
