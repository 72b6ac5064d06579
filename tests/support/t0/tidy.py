"""Source files that the tests of t0_tidy read, and the check that imports make no circle."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.checkout import ROOT


def sources() -> list[Path]:
    """Return the files of the project: tracked ones, and new ones that are not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.py", "*.c", "*.h"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    return [ROOT / name for name in listed if (ROOT / name).exists()]


def require_no_circle(graph: Mapping[str, set[str]]) -> None:
    done: set[str] = set()

    def visit(name: str, way: list[str]) -> None:
        assert name not in way, " imports ".join([*way[way.index(name) :], name])
        if name not in done:
            for other in sorted(graph[name] - {name}):
                # A package contains its modules, so it does not count as a module beside them.
                if not name.startswith(f"{other}."):
                    visit(other, [*way, name])
            done.add(name)

    for name in sorted(graph):
        visit(name, [])
