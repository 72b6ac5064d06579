"""Fixtures of more than one layer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.config import Settings
from gateway.namespace.facade import Namespace
from tests.support.volumes import make_settings, make_volume


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings of a gateway whose volume has been made."""
    made = make_settings(tmp_path / "data")
    make_volume(made)
    return made


@pytest.fixture
def namespace(settings: Settings) -> Iterator[Namespace]:
    """The namespace, open."""
    opened = Namespace(settings)
    yield opened
    opened.close()
