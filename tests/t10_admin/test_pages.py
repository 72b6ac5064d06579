"""The pages without a browser: what is served, and that it comes from here only."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from admin_api.pages.render import STATIC

VENDOR = STATIC / "vendor"
AXE = Path(__file__).parent / "axe"


@pytest.mark.parametrize("directory", [VENDOR, AXE], ids=["pages", "tests"])
def test_foreign_files_are_those_that_were_published(directory: Path) -> None:
    listed = json.loads((directory / "vendor.json").read_text())
    for one in listed:
        digest = hashlib.sha256((directory / one["file"]).read_bytes()).hexdigest()
        assert digest == one["sha256"], one["file"]
        assert one["version"] in one["file"]
    named = {name for one in listed for name in (one["file"], one["licence_file"])}
    assert {path.name for path in directory.iterdir()} == {*named, "vendor.json"}
