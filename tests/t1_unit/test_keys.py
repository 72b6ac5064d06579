"""Paths and keys: readable, reversible, and no two paths on one key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.objectstore.keys import key_of, parts_of, staging_key

NASTY = [b"%", b"%4", b"%41", b"A", b"%25", b"%2541", b"\xff", b"%FF", b"%ff", b"\x01", b"\x7f"]
NASTY += [b".spillway", b"%2Espillway", b"%252Espillway", b"\xed\xa0\x80", "é".encode(), b"%%41"]

names = st.one_of(
    st.sampled_from(NASTY),
    st.binary(min_size=1, max_size=12).filter(
        lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b"..")
    ),
    st.lists(st.sampled_from([b"%", b"4", b"1", b"f", b"\xff", b"\n"]), min_size=1).map(b"".join),
)
paths = st.lists(names, min_size=1, max_size=5)
prefixes = st.sampled_from(["", "p", "team/run 1", ".spillway"])


@given(prefixes, paths)
def test_a_key_leads_back_to_its_path(prefix: str, parts: list[bytes]) -> None:
    key = key_of(prefix, parts)
    assert parts_of(prefix, key) == parts
    key.encode()
    assert not any(ord(char) < 0x20 or ord(char) == 0x7F for char in key)


@given(prefixes, paths, paths)
def test_two_paths_never_share_a_key(prefix: str, one: list[bytes], other: list[bytes]) -> None:
    assert (key_of(prefix, one) == key_of(prefix, other)) == (one == other)


@given(prefixes, paths)
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
    ],
)
def test_keys_are_as_documented(parts: list[bytes], key: str) -> None:
    assert key_of("", parts) == key
    assert key_of("p/q", parts) == "p/q/" + key


@pytest.mark.parametrize("key", ["p", "p/", "q/a", "p/.spillway/staging/1", "p/.spillway", "pa"])
def test_a_foreign_key_has_no_path(key: str) -> None:
    with pytest.raises(ValueError, match="not the key of a file"):
        parts_of("p", key)
