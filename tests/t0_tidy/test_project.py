"""What people outside of the project read: its versions, its tables, its decisions."""

from __future__ import annotations

import re
import subprocess

import yaml
from fastapi.routing import APIRoute

from admin_api.app import ROUTERS
from admin_api.store import AdminBase
from gateway.db import checkpoint_models
from package.build import project_version
from tests.support.checkout import ROOT

_PACKAGE = re.compile(r"spillway_(\d[\w.]*)\+deb\d")


def test_the_changelog_has_a_section_for_the_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    sections = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert sections[:2] == ["Unreleased", project_version()]
    assert "### Upgrade notes\n" in text.split(f"## {project_version()}\n")[1].split("\n## ")[0]


def test_the_roles_have_the_version_of_their_package() -> None:
    collection = yaml.safe_load((ROOT / "ansible/galaxy.yml").read_text())
    assert collection["version"] == project_version()
    assert f"\n## {project_version()}\n" in (ROOT / "ansible/CHANGELOG.md").read_text()


def test_each_name_of_the_package_has_the_version() -> None:
    grep = ["git", "grep", "-hIE", r"spillway_[0-9][0-9a-z.]*\+deb[0-9]", "--", ":!tests"]
    lines = subprocess.run(grep, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    named = _PACKAGE.findall(lines)
    assert len(named) > 2
    assert {*named} == {project_version()}


def _rows(path: str, heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading of a document."""
    section = (ROOT / path).read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("| ") for line in section.splitlines() if line.startswith("|")]
    return [row.split(" | ") for row in rows[2:]]


def test_the_map_has_each_package() -> None:
    named = " ".join(row[0] for row in _rows("CONTRIBUTING.md", "The map"))
    packages = {path.parent for path in (ROOT / "gateway").glob("*/__init__.py")}
    folders = {ROOT / name for name in ("fsal", "admin_api", "migrations", "package", "packer")}
    missing = {str(path.relative_to(ROOT)) for path in packages | folders}
    assert len(packages) > 10
    assert {name for name in missing if f"`{name}/`" not in named} == set()


def test_each_question_names_a_place() -> None:
    rows = _rows("CONTRIBUTING.md", "Where is it")
    assert len(rows) > 20
    assert [question for question, place in rows if "/" not in place] == []


def test_the_page_of_the_schema_has_every_table() -> None:
    namespace, _, admin = (
        (ROOT / "docs/reference/schema.md")
        .read_text()
        .partition("\n## The admin API's own database\n")
    )
    for text, base in ((namespace, checkpoint_models.Base), (admin, AdminBase)):
        rows = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
        assert sorted(rows) == sorted(base.metadata.tables)


def test_the_page_of_the_api_names_operations_that_there_are() -> None:
    there = {
        f"{method} {route.path}"
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    text = (ROOT / "docs/reference/api.md").read_text()
    named = re.findall(r"\b(?:GET|POST|PUT|DELETE) /[\w/{}-]+(?:\.json)?", text)
    assert len(set(named)) > 10
    known = there | {"GET /api/v1/openapi.json", "GET /metrics"}
    templates = [re.sub(r"\\{\w+\\}", r"[\\w{}-]+", re.escape(pattern)) for pattern in known]
    assert [
        string for string in named if not any(re.fullmatch(two, string) for two in templates)
    ] == []


def test_each_decision_has_its_parts_and_is_in_the_list() -> None:
    folder = ROOT / "docs/decisions"
    pages = sorted(path for path in folder.glob("*.md") if path.name != "README.md")
    assert len(pages) > 10
    parts = ("Decision", "Reason", "Figure", "What would change it")
    lacking = {
        (path.name, part)
        for path in pages
        for part in parts
        if f"**{part}**" not in path.read_text()
    }
    assert lacking == set()
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (folder / "README.md").read_text())
    assert sorted(listed) == [path.name for path in pages]
