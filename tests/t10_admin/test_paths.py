"""Paths in requests and answers: every name of NFS has a form that can be sent back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from admin_api.requests import PathText, path_of
from gateway.config import loader
from gateway.config.settings import Settings

ASKED: TypeAdapter[str] = TypeAdapter(PathText)
SETTINGS: Settings = loader.from_mapping({"bucket": {"name": "b"}}, {}, Path("/none"))


@given(st.binary(min_size=1).filter(lambda name: b"\0" not in name))
def test_every_name_can_be_sent_back(name: bytes) -> None:
    text = path_of(SETTINGS, name)
    text.encode()  # JSON is UTF-8
    assert os.fsencode(ASKED.validate_python(text)) == b"/checkpoints/" + name


def test_readable_names_stay_readable() -> None:
    assert path_of(SETTINGS, "100% größe".encode()) == "/checkpoints/100% größe"
    assert path_of(SETTINGS, b"100%41 \xff\n") == "/checkpoints/100%2541 %FF%0A"
    assert path_of(SETTINGS, b"") == "/checkpoints"


@pytest.mark.parametrize("text", ["", "a%00b", "a\0b", "a\ud800"])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        ASKED.validate_python(text)
