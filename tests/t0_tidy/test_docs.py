"""Everything that the documents name exists, and the documents have what a reader needs."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.main import RENAMED, program_parser
from gateway.config.loader import render
from gateway.config.settings import SECTIONS
from package.lock import lock_file
from tests.support.checkout import ROOT
from tests.support.t0.docs import DOCUMENTS
from tests.support.t0.tidy import sources

TASKS = sorted((ROOT / "docs/tasks").glob("*.md"))
CONFIGURATION = ROOT / "docs/reference/configuration.md"
README_LINES_MAX = 120
TERMS_MAX = 60
_FOLDERS = r"gateway|fsal|admin_api|tests|docs|migrations|package|packer|ansible|\.ci"
_FILE = re.compile(rf"`((?:{_FOLDERS})/[\w./-]+\.\w+)`")
_DRAWN = re.compile(r"\b\w+\.(?:py|c)\b")
_TEST = re.compile(r"`(?:tests/)?(?:(\w+)/)?(test_\w+\.(?:py|c))(?:::(\w+))?`")
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


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_tests_exist(path: Path) -> None:
    missing = []
    for folder, file, test in _TEST.findall(path.read_text()):
        paths = [
            one
            for one in (ROOT / "tests").rglob(file)
            if folder in ("", one.parent.name)
            and re.search(rf"^(?:def|static void) {test}", one.read_text(), re.MULTILINE)
        ]
        if not paths:
            missing.append((folder, file, test))
    assert missing == []


def test_promises_name_tests() -> None:
    text = (ROOT / "gateway/SEMANTICS.md").read_text()
    assert len({file for _folder, file, _test in _TEST.findall(text)}) > 20


def test_each_crash_window_says_whether_a_test_shows_it() -> None:
    text = (ROOT / "gateway/CONCURRENCY.md").read_text()
    rows = text.split("## Crash windows\n")[1].strip().splitlines()[2:]
    assert len(rows) > 20
    shown = [row.strip("| ").rpartition(" | ")[2] for row in rows]
    assert [one for one in shown if one != "no test" and "::" not in one] == []


def test_each_guard_of_the_cache_names_the_test_that_fails_without_it() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    section = text.split("## Guards of evictions and cold reads\n")[1].split("\n## ")[0]
    rows = [row.strip("| ").split(" | ") for row in section.splitlines() if row.startswith("|")][2:]
    assert len(rows) > 20
    kinds = {guard.partition(":")[0] for guard, _where, _test in rows}
    assert kinds == {"Open", "Version", "Epoch", "Digest", "ETag", "Map", "Parking"}
    assert [where for _guard, where, _test in rows if not _FILE.findall(where)] == []
    assert [test for _guard, _where, test in rows if "::" not in test] == []


def _explained(text: str) -> list[str]:
    """Return the settings that the tables of a text explain, each as often as it has a row."""
    firsts = re.findall(r"^\| ((?:`[a-z]+\.\w+`(?:, )?)+)", text, re.MULTILINE)
    return [key for first in firsts for key in re.findall(r"`([^`]+)`", first)]


def test_every_setting_is_explained() -> None:
    keys = [f"{section}.{key.name}" for section, kind in SECTIONS.items() for key in fields(kind)]
    assert set(_explained(CONFIGURATION.read_text())) == set(keys)


def test_no_setting_is_explained_twice() -> None:
    keys = [key for path in (CONFIGURATION, *TASKS) for key in _explained(path.read_text())]
    assert len(keys) > 50
    assert sorted(set(keys)) == sorted(keys)


def _default_told(cell: str, name: str, section: str) -> Any:
    """Return the default that a row tells: in its cell, or in a block of TOML below its table."""
    match cell:
        case "empty":
            return ""
        case "none":
            return []
        case "below":
            blocks = re.findall(r"^```toml\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
            return next(found[name] for found in map(tomllib.loads, blocks) if name in found)
        case _:
            return tomllib.loads(f"value = {cell.strip('`')}")["value"]


def test_each_default_is_told() -> None:
    commented = re.sub(r"^# (\w+ = )", r"\1", render({}), flags=re.MULTILINE)
    defaults = tomllib.loads(commented)
    told: dict[str, dict[str, Any]] = {}
    for section in CONFIGURATION.read_text().split("\n## ")[1:]:
        rows = re.findall(r"^\| `(\w+)\.(\w+)` \| ([^|]*)\|", section, re.MULTILINE)
        for part, name, cell in rows:
            if (part, name) != ("bucket", "name"):
                told.setdefault(part, {})[name] = _default_told(cell.strip(), name, section)
    del defaults["bucket"]["name"]
    assert told == defaults


def test_each_task_is_in_the_list_of_contents() -> None:
    listed = set(_ANCHOR.findall((ROOT / "docs/tasks/README.md").read_text()))
    tasks = {
        (path.name, anchor)
        for path in TASKS
        for heading in re.findall(r"^## (.+)$", path.read_text(), re.MULTILINE)
        for anchor in _anchors(f"# {heading}\n")
        if path.name != "README.md" and anchor != "limits"
    }
    assert len(tasks) > 30
    assert tasks - listed == set()


@pytest.mark.parametrize("path", TASKS, ids=lambda path: path.name)
def test_a_page_begins_with_what_one_wants_to_do(path: Path) -> None:
    """The first table leads to each task of the page."""
    first, *tasks = path.read_text().split("\n## ")
    listed = {anchor for _name, anchor in _ANCHOR.findall(first)}
    wanted = _anchors("".join(f"# {task.splitlines()[0]}\n" for task in tasks)) - {"limits"}
    assert path.name == "README.md" or ("\n| you want to |" in first and wanted <= listed)


def _commands(text: str) -> list[str]:
    """Return what follows ``spillway`` in the lines of a text's blocks, without their comments."""
    blocks = re.findall(r"^( *)```\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
    lines = "".join(block for _indent, block in blocks)
    found = re.findall(r"^ *(?:runuser -u spillway -- )?spillway (.+)$", lines, re.MULTILINE)
    return [re.sub(r"[\[\]…]", "", line.partition(" #")[0]) for line in found]


def test_the_commands_of_the_pages_can_be_parsed() -> None:
    commands = [command for path in TASKS for command in _commands(path.read_text())]
    assert len(commands) > 50
    for command in commands:
        _args, unknown = program_parser().parse_known_args(shlex.split(command))
        assert (command, unknown) == (command, [])


def _commands_of_a_release_before(text: str) -> list[str]:
    """Return what a text calls a command and is only an alias of one now. In a list in one cell of
    a table, like ``spillway mv``, ``rm``, ``spillway`` is left out."""
    told = re.findall(r"spillway (?:--\w+ )*([a-z-]+(?: [a-z-]+)?)", text)
    for row in re.findall(r"^\| (`spillway [^|]+) \|", text, re.MULTILINE):
        told += [name.removeprefix("spillway ") for name in re.findall(r"`([a-z][a-z -]+)", row)]
    return [name for name in told if name.split()[0] in RENAMED]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_have_their_name_of_today(path: Path) -> None:
    text = path.read_text()
    if path == ROOT / "CHANGELOG.md":
        text = text.split("| earlier | now |")[0]
    assert _commands_of_a_release_before(text) == []


def test_texts_of_settings_name_commands_of_today() -> None:
    assert _commands_of_a_release_before("\n".join(_texts("gateway/config/settings.py"))) == []


def _texts(path: str) -> list[str]:
    """Return the string constants of a module, also the fixed parts of formatted ones."""
    nodes = ast.walk(ast.parse((ROOT / path).read_text()))
    found = [node.value for node in nodes if isinstance(node, ast.Constant)]
    return [value for value in found if isinstance(value, str)]


def _alarms() -> list[str]:
    """Return the longest fixed part of the text of each alarm of the dashboard."""
    alarms = []
    for node in ast.walk(ast.parse((ROOT / "gateway/service/alarms.py").read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Alarm":
            text = node.args[1]
            parts = text.values if isinstance(text, ast.JoinedStr) else [text]
            fixed = [str(part.value) for part in parts if isinstance(part, ast.Constant)]
            alarms.append(max(fixed, key=len).strip(" :,"))
    return alarms


def test_each_alarm_has_a_remedy() -> None:
    """Alarms are those of the dashboard, and the capitals in ``spillway status``."""
    text = (ROOT / "docs/tasks/monitoring.md").read_text()
    table = text.split("## What each alarm wants\n")[1].split("\n#")[0]
    alarms = _alarms()
    assert len(alarms) > 10
    assert [alarm for alarm in alarms if alarm not in table] == []
    modules = [f"gateway/cli/{name}.py" for name in ("status", "checkpoints", "policies")]
    said = " ".join(text for module in modules for text in _texts(module))
    loud = set(re.findall(r"\b[A-Z]{4,}(?: [A-Z]{2,})*\b", said)) - {
        "JSON",
        "JSON PATH",
        "PATH",
        "TEXT",
        "TOML",
    }
    assert [word for word in sorted(loud) if word not in table] == []


def test_licences_are_of_the_wheels_in_the_package() -> None:
    listed = re.findall(r"^\| (\S+) +\| \d", (ROOT / "docs/licences.md").read_text(), re.MULTILINE)
    pinned = re.findall(r"^(\S+)==", lock_file().read_text(), re.MULTILINE)
    assert sorted(name.lower().replace("_", "-") for name in listed) == pinned


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES_MAX


def _walk(name: str) -> tuple[list[set[str]], set[str]]:
    """Return the names of the files in each stage of a walk's drawing, and those in its text.

    A line of a drawing without a file names the stage that follows, or explains the line above it.
    """
    text = (ROOT / "docs/architecture.md").read_text()
    section = text.split(f"### {name}\n")[1].split("\n#")[0]
    _before, drawing, after = section.split("```")
    stages: list[set[str]] = [set()]
    for line in drawing.splitlines():
        if line and not line.startswith(" ") and not _DRAWN.search(line):
            stages.append(set())
        stages[-1].update(_DRAWN.findall(line))
    return [stage for stage in stages if stage], {Path(one).name for one in _FILE.findall(after)}


@pytest.mark.parametrize("name", ["A write", "A rename", "An upload", "A cold read", "A recovery"])
def test_the_text_of_a_walk_has_the_path_of_each_file_that_is_drawn(name: str) -> None:
    stages, told = _walk(name)
    drawn = set[str]().union(*stages)
    assert len(drawn) >= 5
    assert drawn - told == set()


@pytest.mark.parametrize("name", ["A rename", "An upload"])
def test_a_stage_of_a_walk_has_at_most_five_files(name: str) -> None:
    stages, told = _walk(name)
    assert len(stages) == 2
    assert max(map(len, stages)) <= 5
    assert told == set[str]().union(*stages), "the drawing lacks a file of the text"


def _words(text: str) -> str:
    """Return a text in lower case, with one space between its words and parts of names."""
    return " ".join(re.findall(r"[a-z0-9]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", text).lower()))


def test_the_glossary_has_few_terms_and_each_is_used() -> None:
    """A term that stands in the glossary only is private: the field has another word for it."""
    glossary = ROOT / "docs/glossary.md"
    terms = re.findall(r"^\| (?!term \|)([^|]+) \|", glossary.read_text(), re.MULTILINE)
    assert 0 < len(terms) <= TERMS_MAX
    assert sorted(set(map(str.lower, terms))) == sorted(map(str.lower, terms))
    texts = [path.read_text() for path in (*DOCUMENTS, *sources()) if path != glossary]
    used = _words(" ".join(texts))
    assert [term for term in terms if f" {_words(term)}" not in used] == []
