"""The origin of an object comes from its metadata, and missing values are never guessed."""

from __future__ import annotations

import pytest

from gateway.objectstore.metadata import ObjectOrigin, origin_of, with_rest

ALL = {"volume": "ab", "ino": "17", "content-version": "3", "generation": "9", "mode": "0644"}


@pytest.mark.parametrize(
    ("changed", "origin"),
    [
        ({}, ObjectOrigin("ab", 17, 3, 9)),
        ({"ino": "seventeen"}, ObjectOrigin("ab", None, 3, 9)),
        ({"content-version": "-3"}, ObjectOrigin("ab", 17, None, 9)),
        ({"generation": "x"}, ObjectOrigin("ab", 17, 3, None)),
    ],
)
def test_what_is_no_number_is_not_taken_for_one(
    changed: dict[str, str], origin: ObjectOrigin
) -> None:
    assert origin_of(ALL | changed) == origin


def test_an_object_of_an_earlier_version_has_no_generation() -> None:
    assert origin_of({"ino": "1", "content-version": "2"}) == ObjectOrigin(None, 1, 2, 0)
    assert origin_of({}) == ObjectOrigin(None, None, None, 0)


def test_the_rest_of_a_path_is_replaced() -> None:
    assert with_rest("a/b", {"path-rest": "old", "ino": "1"}) == {"path-rest": "a/b", "ino": "1"}
    assert with_rest("", {"path-rest": "old"}) == {}
