"""Everything that the documents name exists, and the documents have what a reader needs."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from gateway.settings import SECTIONS
from tests.t0_tidy.test_tidy import ROOT

DOCUMENTS = sorted(
    path for pattern in ("*.md", "docs/*.md", "gateway/*.md") for path in ROOT.glob(pattern)
)
README_LINES_MAX = 120
_FILE = re.compile(r"`((?:gateway|fsal|tests|docs|migrations|\.ci)/[\w./]+\.\w+)`")
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_ANCHOR = re.compile(r"\]\(([^):]*)#([^)]+)\)")


def _anchors(text: str) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_links_exist(path: Path) -> None:
    text = path.read_text()
    assert [name for name in _FILE.findall(text) if not (ROOT / name).exists()] == []
    assert [name for name in _LINK.findall(text) if not (path.parent / name).exists()] == []
    wrong = []
    for name, anchor in _ANCHOR.findall(text):
        target = path.parent / name if name else path
        if anchor not in _anchors(target.read_text()):
            wrong.append(f"{name}#{anchor}")
    assert wrong == []


def test_promises_name_tests_that_exist() -> None:
    text = (ROOT / "gateway/SEMANTICS.md").read_text()
    there = {path.name for path in (ROOT / "tests").rglob("test_*")}
    named = set(re.findall(r"`(test_\w+\.(?:py|c))", text))
    assert len(named) > 20
    assert named <= there


def test_every_setting_is_explained_by_its_task() -> None:
    text = (ROOT / "docs/operating.md").read_text()
    keys = [f"{section}.{key.name}" for section, kind in SECTIONS.items() for key in fields(kind)]
    assert [key for key in keys if f"`{key}" not in text] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES_MAX


@pytest.mark.parametrize("walk", ["A rename", "An upload"])
def test_a_walk_has_at_most_five_files(walk: str) -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    section = text.split(f"### {walk}\n")[1].split("\n#")[0]
    files = set(_FILE.findall(section))
    assert 3 <= len(files) <= 5
