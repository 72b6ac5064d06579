"""Keys are readable, lead back to their paths, and are different for different paths."""

from __future__ import annotations

import hashlib
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.common.text import bytes_of, text_of
from gateway.objectstore.key_mapper import (
    KEY_MAX_BYTES,
    REST_MAX_BYTES,
    is_shortened,
    key_of,
    parts_of,
    rest_of,
    staging_key,
)

NASTY = [b"%", b"%4", b"%41", b"A", b"%25", b"%2541", b"\xff", b"%FF", b"%ff", b"\x01", b"\x7f"]
NASTY += [b"%~", b"%~" + b"0" * 64, "\ufffe\uffff".encode(), b"%2E", b"a\\b", b" ", b"+", b"?#&"]
NASTY += [b".spillway", b"%2Espillway", b"%252Espillway", b"\xed\xa0\x80", "é".encode(), b"%%41"]

names = st.one_of(
    st.sampled_from(NASTY),
    st.binary(min_size=1, max_size=12).filter(lambda name: b"/" not in name and b"\0" not in name),
    st.lists(st.sampled_from([b"%", b"4", b"1", b"f", b"\xff", b"\n"]), min_size=1).map(b"".join),
)
paths = st.lists(names, min_size=1, max_size=5)
long_names = st.builds(
    lambda start, byte, count: (start + byte * count)[:255],
    names,
    st.sampled_from([b"x", b"\xff", b"\n", "é".encode(), b"%"]),
    st.integers(0, 254),
)
long_paths = st.lists(long_names, min_size=1, max_size=12)
prefixes = st.sampled_from(["", "p", "team/run 1", ".spillway"])


@given(prefixes, paths)
def test_a_key_leads_back_to_its_path(prefix: str, parts: list[bytes]) -> None:
    key = key_of(prefix, parts)
    assert parts_of(prefix, key) == parts
    assert not is_shortened(key)
    assert rest_of(prefix, parts) == ""
    key.encode()
    assert not {".", ".."} & set(key.removeprefix(prefix).split("/"))
    assert not set(key) & {"\ufffe", "\uffff"}
    assert not any(ord(char) < 0x20 or ord(char) == 0x7F for char in key)


@given(prefixes, paths, paths)
def test_two_paths_never_share_a_key(prefix: str, one: list[bytes], other: list[bytes]) -> None:
    assert (key_of(prefix, one) == key_of(prefix, other)) == (one == other)


@given(prefixes, long_paths)
def test_no_key_is_too_long_and_the_whole_path_can_be_told(prefix: str, parts: list[bytes]) -> None:
    key, rest = key_of(prefix, parts), rest_of(prefix, parts)
    assert len(key.encode()) <= KEY_MAX_BYTES
    assert len(rest) <= REST_MAX_BYTES
    kept = parts_of(prefix, key)
    assert kept == parts[: len(kept)]
    assert is_shortened(key) == (kept != parts) == bool(rest)
    end = [unquote_to_bytes(name) for name in rest.split("/")] if rest else []
    assert end == parts[len(parts) - len(end) :]
    if sum(3 * len(name) + 1 for name in parts[len(kept) :]) <= REST_MAX_BYTES:
        assert kept + end == parts


@given(prefixes, long_paths, st.integers(0, 11), long_names)
def test_two_long_paths_never_share_a_key(
    prefix: str, one: list[bytes], at: int, name: bytes
) -> None:
    other = [*one[: at % len(one)], name, *one[at % len(one) + 1 :]]
    assert (key_of(prefix, one) == key_of(prefix, other)) == (one == other)
    # A path that looks like the key of a shortened path has another key.
    again = [part.encode() for part in key_of("", one).split("/")]
    assert (key_of("", again) == key_of("", one)) == (again == one)


@given(prefixes, long_paths)
def test_no_path_is_below_our_own_prefix(prefix: str, parts: list[bytes]) -> None:
    ours = staging_key(prefix, 1).removesuffix("staging/1")
    assert not (key_of(prefix, parts) + "/").startswith(ours)


@pytest.mark.parametrize(
    ("parts", "key"),
    [
        ([b"run", b"step-1.pt"], "run/step-1.pt"),
        (["größe".encode(), b"100%"], "größe/100%"),
        ([b"a%20b"], "a%2520b"),
        ([b"\xff\xfe"], "%FF%FE"),
        ([b"tab\there\x7f"], "tab%09here%7F"),
        ([b".spillway", b"x"], "%2Espillway/x"),
        ([b"x", b".spillway"], "x/.spillway"),
        ([b"..", b"."], "%2E%2E/%2E"),
        (["\uffff".encode()], "%EF%BF%BF"),
        ([b"a%~b"], "a%25~b"),
    ],
)
def test_keys_are_as_documented(parts: list[bytes], key: str) -> None:
    assert key_of("", parts) == key
    assert key_of("p/q", parts) == "p/q/" + key


def test_a_key_that_is_too_long_keeps_the_directories_that_fit() -> None:
    parts = [b"run", b"d" * 250, b"e" * 250, b"f" * 250, b"g" * 250, b"end" * 10]
    digest = hashlib.sha256(b"/".join(parts)).hexdigest()
    assert key_of("p", parts) == "p/" + b"/".join(parts[:4]).decode() + f"/%~{digest}"
    assert rest_of("p", parts) == "g" * 250 + "/" + "end" * 10
    assert not is_shortened(key_of("p", parts[:4]))


@pytest.mark.parametrize("key", ["p", "p/", "q/a", "p/.spillway", "pa"])
def test_a_foreign_key_has_no_path(key: str) -> None:
    with pytest.raises(ValueError, match="not the key of a file"):
        parts_of("p", key)


@given(st.one_of(names, paths.map(b"/".join)))
def test_a_text_leads_back_to_its_bytes(raw: bytes) -> None:
    text = text_of(raw)
    assert bytes_of(text) == raw
    assert not any(ord(char) < 0x20 or ord(char) == 0x7F for char in text)
