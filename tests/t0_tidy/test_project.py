"""What people outside of the project read: its versions, its tables, its decisions."""

from __future__ import annotations

import re
import subprocess

import yaml

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
