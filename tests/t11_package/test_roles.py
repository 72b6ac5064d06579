"""The variables of the roles: what is declared is what is set, and the example is right."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.appliance.site import SiteExport
from gateway.config import loader
from tests.support.checkout import ROOT
from tests.support.postgres import PostgresServer

DATABASE = runpy.run_path(str(ROOT / "ansible/roles/spillway/files/database.py"))
_PG_DUMP = """\
#!/bin/sh
{} "$@" && LC_ALL=C sed -i -E 's/[0-9]+([.][0-9]+ [(])/10\\1/' "${{2#--file=}}"
"""
ROLES = sorted(path.name for path in (ROOT / "ansible/roles").iterdir())


def load(name: str) -> Any:
    return yaml.safe_load((ROOT / "ansible" / name).read_text())


@pytest.mark.parametrize("role", ROLES)
def test_each_variable_has_a_type_and_a_default(role: str) -> None:
    options = load(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    defaults = load(f"roles/{role}/defaults/main.yml")
    needed = {name for name, spec in options.items() if spec.get("required")}
    assert set(defaults) == set(options) - needed
    assert all(spec["type"] and spec["description"] for spec in options.values())
    # Lists of other roles' settings are made by a template.
    stated = {name: spec["default"] for name, spec in options.items() if name not in needed}
    stated.pop("spillway_settings_of_roles", None)
    defaults.pop("spillway_settings_of_roles", None)
    assert defaults == stated


def test_the_example_is_a_configuration() -> None:
    settings = load("inventory/group_vars/gateways.yml")["spillway_settings"]
    assert loader.from_mapping(settings, {}).bucket.name == "my-checkpoints"


def test_the_site_has_every_role() -> None:
    [play] = load("site.yml")
    assert sorted(role["role"] for role in play["roles"]) == ROLES
    assert all(role["tags"] == role["role"] for role in play["roles"])


def test_no_task_goes_on_after_any_failure() -> None:
    """Those that may fail say by which status."""
    allowed = {
        "Look whether this role wrote the credentials of the bucket",
        "Read what was upgraded last",
    }
    names = {
        task["name"]
        for path in sorted((ROOT / "ansible").rglob("*.yml"))
        if path.parent.name in ("tasks", "handlers")
        for task in tasks(yaml.safe_load(path.read_text()))
        if task.get("failed_when") is False or task.get("ignore_errors")
    }
    assert names == allowed


def test_an_export_is_said_as_at_the_first_boot() -> None:
    options = load("roles/spillway/meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    assert set(options["spillway_exports"]["options"]) == {
        field.name for field in fields(SiteExport)
    }


def test_root_opens_no_file_of_the_data_directory() -> None:
    """Its user could have put a link to any file of the machine there, and root would follow it."""
    for path in sorted((ROOT / "ansible/roles/spillway/tasks").glob("*.yml")):
        for task in tasks(yaml.safe_load(path.read_text())):
            for module in ("copy", "template", "file", "slurp", "stat"):
                found = task.get(f"ansible.builtin.{module}", {})
                files = [str(found.get(key)) for key in ("path", "src", "dest")]
                assert not re.search("spillway_(upgrades|copy|data_dir)", str(files)), path


def tasks(block: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield each task, also of blocks in blocks."""
    for task in block:
        yield task
        for part in ("block", "rescue", "always"):
            yield from tasks(task.get(part, []))


def write_config(directory: Path, url: str = "") -> Path:
    """Write the configuration of a data directory, and a stamp. Returns the file."""
    (directory / "files").mkdir()
    (directory / "files/stamp.json").write_text("stamp\n")
    file = directory / "spillway.toml"
    values: dict[str, dict[str, Any]] = {
        "gateway": {"data_dir": directory},
        "namespace": {"url": url},
    }
    file.write_text(loader.render(values))
    return file


def test_the_database_of_sqlite_comes_back_as_it_was_copied(tmp_path: Path) -> None:
    settings = write_config(tmp_path)
    copy = tmp_path / "upgrades/copy of 0.1+deb12"
    with closing(sqlite3.connect(tmp_path / "namespace.db")) as database:
        database.execute("CREATE TABLE inode (name TEXT)")
    DATABASE["main"]("save", str(copy), settings)
    with closing(sqlite3.connect(tmp_path / "namespace.db")) as database:
        database.execute("ALTER TABLE inode ADD COLUMN age INTEGER")
    (tmp_path / "files/stamp.json").write_text("stamp of the new version\n")
    DATABASE["main"]("restore", str(copy), settings)
    assert (tmp_path / "files/stamp.json").read_text() == "stamp\n"
    assert copy.parent.stat().st_mode & 0o777 == 0o700
    with closing(sqlite3.connect(tmp_path / "namespace.db")) as database:
        assert [column[1] for column in database.execute("PRAGMA table_info(inode)")] == ["name"]


@pytest.mark.parametrize("verb", ["save", "restore"])
def test_a_database_that_is_missing_is_not_copied_as_an_empty_one(
    verb: str, tmp_path: Path
) -> None:
    settings = write_config(tmp_path)
    kept = tmp_path / "copy.stamp.json"
    kept.write_text("stamp of the copy\n")
    with pytest.raises(sqlite3.OperationalError):
        DATABASE["main"](verb, str(tmp_path / "copy"), settings)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [kept.name, "files", "spillway.toml"]
    assert kept.read_text() == "stamp of the copy\n"
    assert (tmp_path / "files/stamp.json").read_text() == "stamp\n"


def test_the_database_of_postgresql_comes_back_as_it_was_copied(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    url = postgres.create_database()
    name = url.rpartition("/")[2]
    settings = write_config(tmp_path, url.replace("@", ":s3cret@"))
    postgres.ask("CREATE TABLE inode (name TEXT PRIMARY KEY)", name)
    DATABASE["main"]("save", str(tmp_path / "copy"), settings)
    postgres.ask("ALTER TABLE inode ADD COLUMN age INTEGER", name)
    # A table of the new schema would be in the way of the next upgrade, and this one in that of the
    # old table too.
    postgres.ask("CREATE TABLE novelty (name TEXT REFERENCES inode)", name)
    DATABASE["main"]("restore", str(tmp_path / "copy"), settings)
    columns = "SELECT table_name, column_name FROM information_schema.columns"
    own = f"{columns} WHERE table_schema = 'public'"
    assert postgres.ask(own, name) == [("inode", "name")]
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["copy", "copy.stamp.json", "files", "spillway.toml"]


def test_a_copy_by_tools_of_another_version_is_refused(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older server does not take what newer tools write. The tool names an older server,
    because there is none here."""
    settings = write_config(tmp_path, postgres.create_database())
    tool = tmp_path / "pg_dump"
    tool.write_text(_PG_DUMP.format(shutil.which("pg_dump")))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(
        SystemExit, match=r"versions 10 and \d+, and the copy could not be put back"
    ):
        DATABASE["main"]("save", str(tmp_path / "copy"), settings)


def test_a_copy_that_is_damaged_changes_no_database(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    url = postgres.create_database()
    settings = write_config(tmp_path, url)
    name = url.rpartition("/")[2]
    postgres.ask("CREATE TABLE inode AS SELECT generate_series(1, 10000)", name)
    DATABASE["main"]("save", str(tmp_path / "copy"), settings)
    copy = (tmp_path / "copy").read_bytes()
    (tmp_path / "copy").write_bytes(copy[:-1000])
    with pytest.raises(subprocess.CalledProcessError):
        DATABASE["main"]("restore", str(tmp_path / "copy"), settings)
    assert postgres.ask("SELECT count(*) FROM inode", name) == [(10_000,)]


@pytest.mark.parametrize(
    ("url", "told", "password"),
    [
        ("postgresql://spillway@/s?host=/run/pg", "postgresql://spillway@/s?host=/run/pg", None),
        ("postgresql://u:a%40b@h:5432,i/s", "postgresql://u@h:5432,i/s", "a@b"),
        ("postgresql+psycopg://u@h/s?password=x&a=b", "postgresql://u@h/s?a=b", "x"),
        ("postgresql://h/s", "postgresql://h/s", None),
    ],
)
def test_no_argument_of_a_process_has_the_password(
    url: str, told: str, password: str | None
) -> None:
    assert DATABASE["without_password"](url) == (told, password)
