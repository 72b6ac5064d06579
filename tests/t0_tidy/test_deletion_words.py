"""One word for each step on the way out: evict, delete, restore, remove for good."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
READ = sorted(
    path
    for pattern in ("admin_api/pages/templates/**/*.html", "gateway/cli/*.py", "docs/tasks/*.md")
    for path in ROOT.glob(pattern)
)
OTHER_WORDS = re.compile(
    r"tak(?:e|es|en)(?: it| them)? back"  # restore
    r"|expires? (?:into|after \{\{)"  # delete
    r"|leaves? the local disk (?:now|after|\()"  # evict
    r"|transitions? to"  # move to another storage class
)


@pytest.mark.parametrize("path", READ, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_text_has_another_word(path: Path) -> None:
    found = OTHER_WORDS.findall(path.read_text())
    assert not found, f"{path}: {found}: see delete, expired, grace and evict in docs/glossary.md"
