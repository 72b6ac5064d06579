"""The house rules that a tool can check: the imports, and the length of files and functions."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.t0 import importgraph
from tests.support.t0.importgraph import imports, name_of
from tests.support.t0.tidy import require_no_circle, sources

FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 60

MODULES_MAX = 359
"""Modules of gateway and admin_api."""
PACKAGES_MAX = 42

PURE = {
    *(f"gateway.catalogue.{name}" for name in ("content", "facts", "indexes", "record", "rules")),
    "gateway.catalogue.frameworks",
    *(
        f"gateway.lifecycle.retention.{name}"
        for name in ("approval", "facts", "keep_rules", "planner", "policy")
    ),
    "gateway.namespace.trackers",
}
"""What decides is pure: it knows neither tables nor files."""
PURE_BELOW = {"gateway.common", "gateway.config.checks"}
PLUGIN_BELOW = {
    *("gateway.common", "gateway.config", "gateway.db", "gateway.namespace", "gateway.nfs.server"),
    "gateway.processes.daemon",
}
"""What the process of the NFS server may import beside the plugin."""
STORES_OBJECTS = {
    "gateway.recovery",
    *("gateway.objectstore", "gateway.cache", "gateway.drain", "gateway.lifecycle.promotion"),
    *(f"gateway.catalogue.manifest_{name}" for name in ("check", "store", "writer")),
    *("gateway.catalogue.member_scan", "gateway.lifecycle.retention.guard"),
    *("gateway.recovery", "gateway.processes", "gateway.service", "gateway.cli", "tests"),
}
"""What may import the object store."""


def is_below(name: str, packages: set[str]) -> bool:
    return any(importgraph.is_in(name, package) for package in packages)


def ours(path: Path) -> set[str]:
    """Return the modules of the product that a file imports."""
    return importgraph.modules().keys() & set(imports(path))


def test_imports_point_down() -> None:
    wrong = [arrow for arrow in importgraph.arrows() if importgraph.leads_up(*arrow)]
    assert wrong == []
    homeless = {name for name in importgraph.modules() if importgraph.package_of(name) is None}
    assert homeless == {"gateway"}


def test_an_import_that_leads_up_would_be_seen() -> None:
    for name, other in (
        ("gateway.db.engine", "gateway.drain.paths"),
        ("fsal.verbs", "gateway.service.files"),
        ("gateway.drain.send.upload", "gateway.drain.plan.order"),
    ):
        assert importgraph.leads_up(name, other)
        assert not importgraph.leads_up(name, name)


def test_the_house_has_few_packages() -> None:
    modules = [name for name in importgraph.modules() if not importgraph.is_in(name, "fsal")]
    assert len(modules) <= MODULES_MAX
    assert len(importgraph.packages()) <= PACKAGES_MAX


def test_what_decides_is_pure() -> None:
    modules = importgraph.modules()
    wrong = [
        f"{name} imports {other}"
        for name in sorted(PURE)
        for other in ours(modules[name])
        if not is_below(other, PURE | PURE_BELOW) and modules[other].name != "__init__.py"
    ]
    wrong += [f"{name} knows tables" for name in PURE if "sqlalchemy" in imports(modules[name])]
    assert wrong == []


def test_the_plugin_and_migrations_need_little() -> None:
    """The NFS server would have the drain in its memory, and a migration the tables of today."""
    modules = importgraph.modules()
    wrong = []
    for path in sources():
        allowed = {"fsal": PLUGIN_BELOW | {"fsal"}, "migrations": {"gateway.db"}}.get(
            path.relative_to(ROOT).parts[0]
        )
        if path.suffix == ".py" and allowed is not None:
            wrong += [
                f"{path} imports {other}"
                for other in ours(path)
                if not is_below(other, allowed) and modules[other].name != "__init__.py"
            ]
    assert wrong == []


def test_each_class_has_a_name_of_its_own() -> None:
    """A reader who meets a name, and a search for it, find one meaning."""
    found = Counter(
        node.name
        for path in importgraph.modules().values()
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name: count for name, count in found.items() if count > 1} == {}


def test_suites_consist_of_tests() -> None:
    """A suite that imports another cannot be changed, or run, without it: helpers are in
    tests/support. A suite may name what its own conftest defines."""
    wrong = []
    for path in sources():
        if path.suffix != ".py" or not path.is_relative_to(ROOT / "tests"):
            continue
        suite = path.relative_to(ROOT).parts[1]
        if re.match("t[0-9]", suite) and not re.match(r"(test_\w+|conftest|__init__)$", path.stem):
            wrong.append(f"{path.relative_to(ROOT)} is no test")
        others = (i for i in imports(path) if re.match(r"tests\.t[0-9]", i))
        own = {f"tests.{suite}.conftest"}
        wrong += [f"{name_of(path)} imports {i}" for i in others if not is_below(i, own)]
    assert not wrong


def test_no_import_leads_back() -> None:
    """This holds also for imports that only a type checker follows: readers follow them too."""
    paths = {name_of(path): path for path in sources() if path.suffix == ".py"}
    require_no_circle(
        {name: {i for i in imports(path) if i in paths} for name, path in paths.items()}
    )


def test_only_the_command_line_prints() -> None:
    """What the admin API serves too knows no terminal: gateway.cli is above all of them."""
    users = {
        name_of(path)
        for path in sources()
        if path.suffix == ".py" and any(is_below(i, {"gateway.cli"}) for i in imports(path))
    }
    assert {name for name in users if not is_below(name, {"gateway.cli", "tests"})} == set()


def test_the_service_returns_models() -> None:
    """What is a mapping of anything has neither units nor texts, and mypy checks nothing of it."""
    found = set()
    for path in sources():
        if path.parent == ROOT / "gateway/service" and path.suffix == ".py":
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                    returned = "" if node.returns is None else ast.unparse(node.returns)
                    if re.search(r"(dict|Mapping)\[str, Any\]", returned):
                        found.add(f"{path.stem}.{node.name}")
    assert found == set()


def test_a_circle_would_be_seen() -> None:
    with pytest.raises(AssertionError, match="a imports b imports a"):
        require_no_circle({"a": {"b"}, "b": {"a", "c"}, "c": set()})


def test_only_some_packages_see_the_object_store() -> None:
    seen = {
        name_of(path)
        for path in sources()
        if path.suffix == ".py" and any(is_below(i, {"gateway.objectstore"}) for i in imports(path))
    }
    assert {name for name in seen if not is_below(name, STORES_OBJECTS)} == set()


def test_one_module_locks_files() -> None:
    """Turns to write to a database have descriptors of their own, which they keep."""
    users = {
        name_of(path) for path in sources() if path.suffix == ".py" and "fcntl" in imports(path)
    }
    names = {name for name in users if is_below(name, {"gateway", "fsal", "admin_api"})}
    assert names == {"gateway.common.files", "gateway.db.sqlite"}


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_are_short(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= FILE_LINES_MAX
    if path.is_relative_to(ROOT / "migrations"):
        return  # a migration is one list of columns
    if path.suffix != ".py":
        bodies = re.findall(r"^\{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL)
        assert max((body.count("\n") for body in bodies), default=0) <= FUNCTION_LINES_MAX
        return
    long = [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert not long


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_says_what_it_owns(path: Path) -> None:
    text = path.read_text()
    if path.suffix == ".py":
        assert ast.get_docstring(ast.parse(text))
    else:
        opening = re.match(r"/\* \w(.*?)\*/", text, re.DOTALL)
        assert opening is not None, "the file does not begin with a comment"
        assert opening[1].rstrip().endswith("."), "its opening is no sentence"
