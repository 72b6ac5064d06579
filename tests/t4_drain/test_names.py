"""Files whose names no key can contain are uploaded, renamed, replaced and deleted like others."""

from __future__ import annotations

import hashlib
import os
from urllib.parse import unquote_to_bytes

import pytest

from gateway.objectstore.key_mapper import KEY_MAX_BYTES, is_shortened, key_of, parts_of
from tests.support.drainsite import MIB, PREFIX, Site
from tests.support.s3proxy import Act

NASTY = [b"\xff\xfe", b"tab\there", b"line\r\nfeed", b"\x01\x7f", b"%41", b"100%", b"%~x", b"..."]
NASTY += [
    "\ufffe\uffff".encode(),
    "größe 漢字 🦀".encode(),
    b"a+b c&d=e?f#g",
    b"back\\slash",
    b"<&>\"'",
]
NASTY += [b" led and trailed ", b"%2Espillway", b"~*!()"]
DEEP = [b"d" * 210, b"e" * 210, b"f" * 210, b"g" * 210, b"h" * 210]


def path_of(*parts: bytes) -> str:
    return os.fsdecode(b"/".join(parts))


def keys(site: Site) -> dict[str, bytes]:
    return {f"{PREFIX}/{key}": body for key, body in site.objects().items()}


def test_names_of_any_bytes(site: Site) -> None:
    files = {parts: b"/".join(parts) for name in NASTY for parts in ((b"dir", name), (name,))}
    files[(b".spillway",)] = b"theirs"
    for parts, data in files.items():
        if parts == (b".spillway",):
            site.write_reserved(data)
        else:
            site.write(path_of(*parts), data)
    site.drain()
    assert keys(site) == {key_of(PREFIX, parts): data for parts, data in files.items()}
    assert all((*parts_of(PREFIX, key),) in files for key in keys(site))
    site.rename("dir", "other\udcff")
    for name in NASTY[::2]:
        site.unlink(path_of(name))
        del files[(name,)]
    moved = {(b"other\xff", *p[1:]) if p[0] == b"dir" else p: data for p, data in files.items()}
    site.drain()
    assert keys(site) == {key_of(PREFIX, parts): data for parts, data in moved.items()}
    for parts in moved:
        site.unlink(path_of(*parts))
    site.drain()
    assert site.objects() == {}
    assert site.left() == []


@pytest.mark.parametrize("size", [10, 11 * MIB])
def test_paths_that_no_key_can_hold(site: Site, size: int) -> None:
    """Their keys are shortened. The object's metadata has the rest, also after a rename."""
    names = [b"one", b"\xfftwo", b"three"]
    data = {name: os.urandom(size) for name in names}
    for name in names:
        site.write(path_of(*DEEP, name), data[name])
    site.drain()
    assert all(map(is_shortened, keys(site)))
    check(site, {(*DEEP, name): data[name] for name in names})
    site.rename(path_of(*DEEP), path_of(*DEEP[:4], b"i" * 210))
    site.drain()
    check(site, {(*DEEP[:4], b"i" * 210, name): data[name] for name in names})
    site.rename(path_of(*DEEP[:4], b"i" * 210, b"one"), "short")
    site.unlink(path_of(*DEEP[:4], b"i" * 210, b"three"))
    site.drain()
    check(site, {(b"short",): data[b"one"], (*DEEP[:4], b"i" * 210, b"\xfftwo"): data[b"\xfftwo"]})
    site.rename("short", path_of(*DEEP, b"one"))
    site.drain()
    check(
        site, {(*DEEP, b"one"): data[b"one"], (*DEEP[:4], b"i" * 210, b"\xfftwo"): data[b"\xfftwo"]}
    )
    site.unlink(path_of(*DEEP, b"one"))
    site.unlink(path_of(*DEEP[:4], b"i" * 210, b"\xfftwo"))
    site.drain()
    assert site.objects() == {}
    assert site.left() == []


def test_an_object_with_a_shortened_key_is_replaced_not_deleted_first(site: Site) -> None:
    path = path_of(*DEEP, b"f")
    site.write(path, b"one")
    site.drain()
    site.write("new", b"two")
    site.rename("new", path)
    site.proxy.inject(lambda r: r.operation == "PUT", Act.DROP, times=2)
    site.drain()
    assert list(site.objects().values()) == [b"one"]
    site.drain()
    assert list(site.objects().values()) == [b"two"]
    assert site.proxy.operations("DELETE") == []
    assert site.left() == []


def check(site: Site, files: dict[tuple[bytes, ...], bytes]) -> None:
    """Require that the bucket has these files, and that key and metadata give the whole path."""
    found = {}
    for key, body in keys(site).items():
        assert len(key.encode()) <= KEY_MAX_BYTES
        rest = None
        # Other keys have no rest, but rclone keeps old metadata if a copy sets none.
        if is_shortened(key):
            rest = site.metadata(key.removeprefix(PREFIX + "/"))["path-rest"]
        end = [] if rest is None else [unquote_to_bytes(name) for name in rest.split("/")]
        found[(*parts_of(PREFIX, key), *end)] = hashlib.md5(body).hexdigest()
    assert found == {parts: hashlib.md5(data).hexdigest() for parts, data in files.items()}
    assert site.left() == []


def test_a_backslash_is_no_slash_in_a_store_that_takes_it_for_one(site: Site) -> None:
    site.write("a/b", b"first")
    site.write("a\\b", b"second")
    site.drain()
    assert site.objects() == {"a/b": b"first", "a%5Cb": b"second"}
    assert site.left() == []
