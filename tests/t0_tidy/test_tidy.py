"""The house rules that a tool can check: the imports, and the length of files and functions."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.checkout import ROOT

FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 60

LIBRARIES = {
    "gateway.escapes",
    "gateway.acknowledge",
    "gateway.types",
    "gateway.atomic",
    "gateway.filelock",
    "gateway.clock",
    "gateway.proc",
    "gateway.backoff",
    "gateway.report",
    "gateway.failpoints",
    "gateway.errors",
    "gateway.settings",
    "gateway.config",
    "gateway.db",
    "gateway.data",
    "gateway.namespace",
    "gateway.objectstore",
    "gateway.holds",
    "gateway.naming",
    "gateway.storageclasses",
    "gateway.keymapper",
    "gateway.ownership",
}
"""The packages that every room of the drain, and the hydrator, may use."""
DRAIN_BASE = {
    f"gateway.drain.{name}"
    for name in (
        "rows",
        "statements",
        "metadata",
        "paths",
        "precedence",
        "lacking",
        "below",
        "awaited",
        "toolarge",
        "context",
        "job",
        "messages",
        "status",
        "queue",
    )
}
DRAIN_ROOMS: dict[str, tuple[str, ...]] = {
    "admission": (),
    "send": (),
    "tidy": ("send",),
    "plan": ("tidy", "send", "admission"),
}
"""The rooms of the drain, each with the rooms below it."""

CHECKPOINTS_PURE = (
    "archives",
    "content",
    "facts",
    "indexes",
    "looks",
    "pickles",
    "quiet",
    "record",
    "rules",
    "steps",
)
RETENTION_PURE = ("policy", "facts", "order", "keeps", "planner", "share", "superseded")
"""What decides is pure: it knows neither tables nor files nor clocks."""

PACKAGES = {"gateway", "gateway.checkpoints", "gateway.drain", "gateway.retention"}
"""Packages that ``imports`` names beside each module that is imported from them."""

# Packages and modules, each with those of ours that it may import. The first match decides.
ALLOWED = {
    "gateway.types": set[str](),
    "gateway.escapes": {"gateway.text"},
    "gateway.atomic": set[str](),
    "gateway.filelock": set[str](),
    "gateway.clock": set[str](),
    "gateway.proc": set[str](),
    "gateway.backoff": set[str](),
    "gateway.report": {"gateway.atomic", "gateway.clock", "gateway.proc"},
    "gateway.failpoints": set[str](),
    "gateway.errors": set[str](),
    "gateway.schedule": {"gateway.units"},
    "gateway.serialize": set[str](),
    "gateway.clients": set[str](),
    "gateway.loopback": set[str](),
    "gateway.early": set[str](),
    "gateway.checks": {
        "gateway.clients", "gateway.loopback", "gateway.schedule", "gateway.units",
    },
    "gateway.declare": {"gateway.checks"},
    "gateway.pathpattern": set[str](),
    "gateway.acknowledge": {
        "gateway.checks", "gateway.declare", "gateway.holds", "gateway.pathpattern"
    },
    "gateway.logs": {"gateway.clock"},
    "gateway.checkpointsettings": {"gateway.checks", "gateway.declare"},
    "gateway.adminsettings": {"gateway.checks", "gateway.declare"},
    "gateway.nfssettings": {"gateway.checks", "gateway.clients", "gateway.declare"},
    "gateway.settings": {
        "gateway.acknowledge", "gateway.adminsettings", "gateway.checks",
        "gateway.checkpointsettings", "gateway.declare", "gateway.logs", "gateway.nfssettings",
    },
    "gateway.config": {
        "gateway.errors", "gateway.checks", "gateway.clients", "gateway.settings"
    },
    "gateway.sizing": {
        "gateway.checkpointsettings", "gateway.errors", "gateway.settings", "gateway.sizing",
    },
    "gateway.state": {"gateway.proc", "gateway.settings"},
    "gateway.datadir": {
        "gateway.clock", "gateway.errors", "gateway.filelock", "gateway.settings", "gateway.state",
    },
    "gateway.port": {"gateway.settings"},
    "gateway.notify": {"gateway.clock"},
    "gateway.services": {
        "gateway.atomic", "gateway.clock", "gateway.datadir", "gateway.errors", "gateway.filelock",
        "gateway.proc", "gateway.settings", "gateway.state",
    },
    "gateway.daemon": {
        "gateway.clock", "gateway.config", "gateway.errors", "gateway.filelock", "gateway.logs",
        "gateway.notify", "gateway.services", "gateway.settings", "gateway.namespace",
    },
    "gateway.holds": set[str](),
    "gateway.naming": set[str](),
    "gateway.storageclasses": set[str](),
    "gateway.keymapper": {"gateway.db", "gateway.namespace.lookup", "gateway.objectstore"},
    "gateway.ownership": {
        "gateway.clock", "gateway.db", "gateway.drain.metadata", "gateway.errors",
        "gateway.filelock", "gateway.objectstore", "gateway.ownership", "gateway.settings",
        "gateway.units",
    },
    "gateway.interrupt": set[str](),
    "gateway.text": set[str](),
    "gateway.tls": set[str](),
    "gateway.units": set[str](),
    "gateway.door": {
        "gateway.types",
        "gateway.errors",
        "gateway.clock",
        "gateway.settings",
        "gateway.serialize",
        "gateway.state",
        "gateway.datadir",
        "gateway.port",
        "gateway.db",
        "gateway.text",
        "gateway.namespace",
        "gateway.door",
    },
    "gateway.db": {
        "gateway.types",
        "gateway.errors",
        "gateway.clock",
        "gateway.failpoints",
        "gateway.filelock",
        "gateway.proc",
        "gateway.db",
    },
    "gateway.data": {"gateway.types", "gateway.errors", "gateway.atomic", "gateway.data"},
    "gateway.namespace": {
        "gateway.types",
        "gateway.atomic",
        "gateway.errors",
        "gateway.clock",
        "gateway.failpoints",
        "gateway.settings",
        "gateway.checks",
        "gateway.acknowledge",
        "gateway.trusted_clock",
        "gateway.escapes",
        "gateway.holds",
        "gateway.proc",
        "gateway.db",
        "gateway.data",
        "gateway.namespace",
    },
    "gateway.objectstore": {
        "gateway.early",
        "gateway.text",
        "gateway.tls",
        "gateway.types",
        "gateway.errors",
        "gateway.clock",
        "gateway.settings",
        "gateway.failpoints",
        "gateway.schedule",
        "gateway.escapes",
        "gateway.storageclasses",
        "gateway.backoff",
        "gateway.objectstore",
    },
    **{
        f"gateway.drain.{room}": {
            *LIBRARIES, *DRAIN_BASE, *(f"gateway.drain.{name}" for name in (room, *below)),
            *({"gateway.cache.warming"} if room == "tidy" else ()),
        }
        for room, below in DRAIN_ROOMS.items()
    },
    **{
        name: {
            *LIBRARIES, *DRAIN_BASE, "gateway.drain.admission", "gateway.logs", "gateway.text",
            "gateway.checkpoints.facts",
        }
        for name in DRAIN_BASE
    },
    "gateway.drain": {"gateway"},
    "gateway.cache": {
        *LIBRARIES, "gateway.checks", "gateway.state", "gateway.text", "gateway.daemon",
        "gateway.door", "gateway.cache",
    },
    # What decides is pure: it knows neither tables nor files.
    **{
        f"gateway.checkpoints.{name}": {
            "gateway.types", "gateway.holds", "gateway.text", "gateway.pathpattern",
            "gateway.clock", "gateway.errors", "gateway.naming",
            *(f"gateway.checkpoints.{one}" for one in CHECKPOINTS_PURE),
        }
        for name in (*CHECKPOINTS_PURE, "frameworks", "configured")
    },
    # The process has duties that build on the catalogue.
    "gateway.checkpoints.__main__": {"gateway"},
    "gateway.checkpoints": {
        *LIBRARIES, "gateway.holds", "gateway.state", "gateway.text", "gateway.daemon",
        "gateway.checkpoints",
        "gateway.cache.warming",
    },
    # What was promoted, and where: commands and policies ask for it too.
    **{
        f"gateway.promotion.{name}": {
            *LIBRARIES, "gateway.text", "gateway.checkpoints.facts",
            *(f"gateway.promotion.{one}" for one in ("store", "places", "wishes")),
            *(("gateway.checkpoints.leftovers", "gateway.checkpoints.rules")
              if name == "members" else ()),
        }
        for name in ("store", "places", "members", "wishes")
    },
    "gateway.promotion": {
        *LIBRARIES, *DRAIN_BASE, "gateway.text", "gateway.door", "gateway.drain.endpoint",
        "gateway.checkpoints.facts", "gateway.manifests", "gateway.promotion",
    },
    "gateway.manifests.document": {
        "gateway.types", "gateway.escapes", "gateway.objectstore.keys"
    },
    "gateway.manifests": {
        *LIBRARIES, "gateway.checkpoints", "gateway.text",
        "gateway.drain.metadata", "gateway.manifests",
    },
    "gateway.receipts.wanted": {
        "gateway.checkpoints.facts", "gateway.checkpoints.shown", "gateway.manifests.document",
        "gateway.text",
    },
    "gateway.receipts": {
        *LIBRARIES, "gateway.checkpoints.catalogue", "gateway.checkpoints.facts", "gateway.door",
        "gateway.manifests.document", "gateway.receipts", "gateway.state", "gateway.text",
    },
    **{
        f"gateway.retention.{name}": {
            "gateway.checks", "gateway.errors", "gateway.holds", "gateway.text",
            "gateway.checkpoints.facts", "gateway.storageclasses", "gateway.types",
            "gateway.units",
            *(f"gateway.retention.{one}" for one in RETENTION_PURE),
        }
        for name in RETENTION_PURE
    },
    "gateway.retention": {
        *LIBRARIES, "gateway.text", "gateway.door", "gateway.cache", "gateway.checkpoints",
        "gateway.promotion.store", "gateway.promotion.wishes", "gateway.retention",
        "gateway.trusted_clock",
    },
    "gateway.exports": {
        "gateway.atomic", "gateway.clients", "gateway.clock", "gateway.config", "gateway.datadir",
        "gateway.db", "gateway.door", "gateway.errors", "gateway.exports", "gateway.filelock",
        "gateway.namespace", "gateway.settings", "gateway.state", "gateway.text", "gateway.types",
    },
    # What it knows of tables it leaves to the commands that it runs.
    "gateway.firstboot": {
        "gateway.adminsettings", "gateway.atomic", "gateway.checks", "gateway.clients",
        "gateway.config", "gateway.declare", "gateway.errors", "gateway.exports.export",
        "gateway.firstboot", "gateway.loopback", "gateway.retention.policy", "gateway.settings",
    },
    "gateway.trash": {
        *LIBRARIES, "gateway.trusted_clock", "gateway.text", "gateway.door", "gateway.cache.room",
        "gateway.checkpoints.catalogue", "gateway.checkpoints.facts",
        "gateway.checkpoints.looks", "gateway.retention.store", "gateway.trash",
    },
    "gateway.trusted_clock": {"gateway.clock", "gateway.types"},
    # The command line prints the facts of gateway.control, and the admin API serves them.
    "gateway.control": {*LIBRARIES, "gateway"},
    "admin_api": {"gateway", "admin_api"},
    "gateway.cli": {"gateway", "admin_api"},
    "fsal": {"fsal", "gateway.namespace", "gateway.db", "gateway.types", "gateway.errors",
             "gateway.config", "gateway.settings", "gateway.notify", "gateway.port",
             "gateway.services"},
    "migrations": {"gateway.db"},
}  # fmt: skip


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


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def below(name: str, packages: set[str]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def test_imports_point_one_way() -> None:
    wrong = []
    for path in sources():
        name = module_of(path)
        rule = next((allowed for key, allowed in ALLOWED.items() if below(name, {key})), None)
        if path.suffix != ".py" or rule is None:
            continue
        ours = (i for i in imports(path) if below(i, {"gateway", "fsal", "admin_api", "tests"}))
        # "from gateway import config" names both the package and the module.
        wrong += [f"{name} imports {i}" for i in ours if i not in PACKAGES and not below(i, rule)]
    assert not wrong


def test_suites_share_only_helpers() -> None:
    """A suite that imports another cannot be changed, or run, without it."""
    wrong = []
    for path in sources():
        if path.suffix == ".py" and path.is_relative_to(ROOT / "tests"):
            own = ".".join(path.relative_to(ROOT).parts[:2])
            others = (i for i in imports(path) if re.match(r"tests\.t[0-9]", i))
            wrong += [f"{module_of(path)} imports {i}" for i in others if not below(i, {own})]
    assert not wrong


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


def test_no_import_leads_back() -> None:
    """This holds also for imports that only a type checker follows: readers follow them too."""
    paths = {module_of(path): path for path in sources() if path.suffix == ".py"}
    require_no_circle(
        {name: {i for i in imports(path) if i in paths} for name, path in paths.items()}
    )


def test_only_the_command_line_prints() -> None:
    """What the admin API serves too knows no terminal: gateway.cli is above all of them."""
    users = {
        module_of(path)
        for path in sources()
        if path.suffix == ".py" and any(below(i, {"gateway.cli"}) for i in imports(path))
    }
    assert {name for name in users if not below(name, {"gateway.cli", "tests"})} == set()


def test_the_service_returns_models() -> None:
    """What is a mapping of anything has neither units nor texts, and mypy checks nothing of it."""
    found = set()
    for path in sources():
        if path.parent == ROOT / "gateway/control" and path.suffix == ".py":
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
        module_of(path)
        for path in sources()
        if path.suffix == ".py" and any(below(i, {"gateway.objectstore"}) for i in imports(path))
    }
    assert {
        name
        for name in seen
        if not below(
            name,
            {
                *("gateway.drain", "gateway.cache", "gateway.cli", "gateway.manifests"),
                *("gateway.control", "gateway.retention.heads"),
                *("gateway.promotion", "gateway.objectstore", "gateway.keymapper", "tests"),
                "gateway.ownership",
            },
        )
    } == set()


def test_one_module_locks_files() -> None:
    """Turns to write to a database have descriptors of their own, which they keep."""
    users = {
        module_of(path) for path in sources() if path.suffix == ".py" and "fcntl" in imports(path)
    }
    ours = {name for name in users if below(name, {"gateway", "fsal", "admin_api"})}
    assert ours == {"gateway.filelock", "gateway.db.lock"}


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
