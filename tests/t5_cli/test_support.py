"""``spillway support-bundle``: what is in it, what never is, and what does not keep it from being
made."""

from __future__ import annotations

import io
import json
import tarfile
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest

from admin_api import audit, store
from admin_api.access.principal import Role
from admin_api.access.tokens import create
from gateway.cli import support
from gateway.cli.bundle import Bundle, NameMask, SecretMask
from gateway.cli.main import main
from gateway.common import clock
from tests.support.checkpoints.world import World
from tests.support.clisite import Site, assert_refused, environ, spillway
from tests.support.namespace import Namespace
from tests.support.postgres import PostgresServer
from tests.support.t8.evicting import tmpfs
from tests.support.volumes import make_volume, write_settings

KEYS = {
    "aws_access_key_id": "AKIAEXAMPLEKEY",
    "aws_secret_access_key": "wJalr/XUtnFEMI+K7MDENG",
    "aws_session_token": 'a"session\\token==',
}
PASSWORD = "pass/word@7"
HOOK, HOOK_PATH = "aGFsZiBvZiBhIHNlY3JldCBhbmQgbW9yZQ==", "services/T0001/B0002/verysecret"
SECRETS = [*KEYS.values(), PASSWORD, "in-the-environment", HOOK, HOOK_PATH]
EARLIER = "of-an-earlier-url"
RUN = "very-private-run"


def make(site: Site, *options: str) -> tuple[int, dict[str, str]]:
    """Make a bundle in this process. Returns the exit status and the texts of the members."""
    path = site.directory / "bundle.tar.gz"
    path.unlink(missing_ok=True)
    status = main(["support-bundle", "--config", str(site.config), *options, str(path)])
    assert path.stat().st_mode & 0o777 == 0o600
    return status, read(path)


def read(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        files = {member.name: archive.extractfile(member) for member in archive}
        return {
            name.removeprefix("spillway-support/"): file.read().decode()
            for name, file in files.items()
            if file is not None
        }


def fake_journal(site: Site, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    programs = site.directory / "programs"
    programs.mkdir()
    program = programs / "journalctl"
    (programs / "lines").write_text(text)
    program.write_text(f'#!/bin/sh\necho "$*"\ncat {programs}/lines\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{environ()['PATH']}")


@pytest.fixture
def full(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A gateway with secrets everywhere, and with names of files."""
    settings = site.settings
    lines = [f"{name} = {value}" for name, value in KEYS.items()]
    settings.credentials_file.write_text("\n".join(["[default]", *lines, ""]))
    monkeypatch.setenv("SOME_API_TOKEN", "in-the-environment")
    with closing(store.open_store(settings)) as admin, admin.writing() as session:
        token = create(session, "person", Role.ADMIN, None, "tests")[1]
        origin = audit.CallOrigin("ci", None, "", "", "COMMAND", f"spillway rm /checkpoints/{RUN}")
        audit.add(session, origin, audit.CallOutcome(200))
    (site.directory / "token").write_text(token)
    (site.directory / "hook").write_text(f"whsec_{HOOK}\n")
    site.edit(
        *("webhooks", "receiver"),
        f'[{{name = "chat", url = "https://h/{HOOK_PATH}", '
        f'secret_file = "{site.directory}/hook"}}]',
    )
    quoted = " ".join(map(json.dumps, SECRETS))
    line = f"{' '.join(SECRETS)} {quoted} postgresql://u:{EARLIER}@host/db {token}\n"
    (settings.log_dir / "ganesha.log").write_text(line * 3)
    (settings.log_dir / "names.jsonl").write_text(f'{{"path": "/checkpoints/{RUN}/a"}}\n')
    fake_journal(site, monkeypatch, f"{line}Authorization: Bearer {token}\n")
    world = World(settings, Namespace(settings))
    world.write(f"{RUN}/a.pt", b"1")
    world.end()
    world.namespace.close()
    return site


def test_no_secret_is_in_a_bundle(full: Site, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"postgresql://u:{quote(PASSWORD, safe='')}@127.0.0.1:9/db"
    full.edit("namespace", "url", f'"{url}"')
    status, parts = make(full, "--names")
    assert status == 1 and "FAILED  status.json" in parts["MANIFEST"], "the database is away"
    whole = "".join(parts.values()) + capsys.readouterr().out
    secrets = [*SECRETS, EARLIER, (full.directory / "token").read_text(), "$argon2"]
    forms = [form for one in secrets for form in (one, json.dumps(one)[1:-1], quote(one, safe=""))]
    assert [form for form in forms if form in whole] == []
    assert parts["logs/ganesha.log"].count("***") == 48


def test_a_bundle_has_what_a_ticket_needs(full: Site) -> None:
    status, parts = make(full, "--names")
    assert (status, "FAILED" in parts["MANIFEST"]) == (0, False), parts["MANIFEST"]
    assert json.loads(parts["status.json"])["dirty"]["oldest"]["path"].endswith(f"/{RUN}/a.pt")
    versions = json.loads(parts["versions.json"])
    assert versions["spillway"] and "boto3" in versions["libraries"] and versions["kernel"]
    assert "V4.3" in versions["ganesha"]
    assert json.loads(parts["alarms.json"])["alarms"]["process_down"] == 6
    assert "spillway_dirty_files 1.0" in parts["metrics.txt"]
    database = json.loads(parts["database.json"])
    assert database["tables"]["inode"]["rows"] > 1
    assert database["schema"] == database["schema_of_this_program"]
    assert json.loads(parts["bucket.json"])["reachable"] is False
    assert "namespace.db" in parts["disk/data-directory.txt"]
    assert json.loads(parts["audit.json"])[0]["path"].endswith(RUN)
    assert RUN in parts["logs/names.jsonl"]
    assert "--unit=spillway-drain" in parts["logs/journal-drain.txt"]
    assert parts["disk/df.txt"] and parts["disk/mounts.txt"]


def test_names_are_only_in_logs_unless_they_are_wanted(full: Site) -> None:
    status, parts = make(full)
    assert status == 0, parts["MANIFEST"]
    assert [name for name, text in parts.items() if RUN in text] == []
    assert "logs/names.jsonl" not in parts
    assert json.loads(parts["status.json"])["dirty"]["oldest"]["path"] == "name-1"
    assert json.loads(parts["audit.json"])[0]["path"] == "spillway rm"
    _status, parts = make(full, "--no-logs")
    assert [name for name in parts if name.startswith("logs/")] == []


def test_only_the_ends_of_logs_are_in_it(full: Site) -> None:
    log = full.settings.log_dir / "ganesha.log"
    log.write_text("first\n" + "x" * (1 << 20) + "\nlast\n")
    _status, parts = make(full, "--log-mib", "1")
    text = parts["logs/ganesha.log"]
    assert len(text) == 1 << 20 and text.endswith("last\n")
    assert main(["support-bundle", "--log-mib", "65"]) == 2


def test_half_of_the_sources_fail(
    full: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = full.settings
    (settings.data_dir / "namespace.db").write_bytes(b"no database" * 1000)
    settings.admin_db.write_bytes(b"neither" * 1000)
    monkeypatch.setenv("PATH", str(full.directory / "programs"))  # no df
    full.edit("nfs", "ganesha", '"/nowhere"')
    status, parts = make(full)
    assert status == 1
    failed = [
        line.split()[1].strip(":") for line in parts["MANIFEST"].splitlines() if "FAILED" in line
    ]
    assert {"status.json", "alarms.json", "metrics.txt", "audit.json", "disk/df.txt"} <= {*failed}
    assert "not known" in json.loads(parts["versions.json"])["ganesha"]
    assert "configuration.json" in parts and "logs/ganesha.log" in parts
    assert "NOT IN IT: status.json: " in capsys.readouterr().out


def test_a_configuration_that_cannot_be_read_keeps_no_bundle_from_being_made(full: Site) -> None:
    full.config.write_text("[bucket\n")
    status, parts = make(full)
    assert status == 1
    assert "FAILED  configuration.json: " in parts["MANIFEST"]
    assert {"versions.json", "disk/df.txt", "logs/journal-nfs.txt"} <= parts.keys()


def test_a_database_that_does_not_answer_is_not_waited_for() -> None:
    file = io.BytesIO()
    bundle = Bundle(file, SecretMask(()), part_seconds=0.1)
    bundle.add("slow", lambda: time.sleep(3) or "")  # type: ignore[func-returns-value]
    bundle.add("quick", lambda: "here")
    bundle.end(["about"])
    assert bundle.failures == {"slow": "no answer within 0 s"}
    file.seek(0)
    with tarfile.open(fileobj=file) as archive:
        assert [member.name.rpartition("/")[2] for member in archive] == ["quick", "MANIFEST"]


def test_all_parts_together_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: now[0])
    bundle = Bundle(io.BytesIO(), SecretMask(()), all_seconds=10)
    bundle.add("first", lambda: "here")
    now[0] += 11
    bundle.add("second", lambda: "here")
    assert list(bundle.sizes) == ["first"] and "not tried" in bundle.failures["second"]


def test_a_full_disk_leaves_nothing_and_the_error_says_what_to_do(site: Site) -> None:
    small = site.directory / "small"
    with tmpfs(small):
        with (small / "fills").open("wb", buffering=0) as file, pytest.raises(OSError):
            while True:
                file.write(b"x" * (1 << 20))
        result = spillway("support-bundle", "--config", site.config, small / "b.tar.gz")
        assert_refused(result, "no bundle was made", "No space left", "/DIRECTORY/FILE")
        assert [path.name for path in small.iterdir()] == ["fills"]


def test_no_file_is_overwritten(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    there = site.directory / "there.tar.gz"
    there.write_text("mine")
    assert main(["support-bundle", "--config", str(site.config), str(there)]) == 2
    assert "is there already: name another file" in capsys.readouterr().err
    assert there.read_text() == "mine"


def test_the_tables_of_postgres_have_sizes(tmp_path: Path, postgres: PostgresServer) -> None:
    url = postgres.create_database()
    settings = write_settings(tmp_path, {"namespace": {"url": url}})
    make_volume(settings)
    facts = support._database(settings)
    assert facts["engine"] == "postgresql" and "PostgreSQL" in facts["engine_version"]
    assert facts["tables"]["inode"]["bytes"] > 0


def test_secrets_of_a_database_are_found_in_each_form(tmp_path: Path) -> None:
    url = "postgresql://me:pass%2Fword%407@127.0.0.1:1/db?sslpassword=of-the-key"
    settings = write_settings(tmp_path, {"namespace": {"url": url}})
    mask = SecretMask(support._secrets(settings))
    for secret in (PASSWORD, "pass%2Fword%407", "of-the-key"):
        assert mask(f"at {secret}.") == "at ***."


def test_texts_quote_no_names() -> None:
    document = {
        "stuck": {"first": [{"path": "/e/run 1/a", "reason": "no /e/run 1/a and no /e/b/c: why"}]},
        "phase": "ready",
        "run": "ready",
        "path": "/data",
        "text": "ready at /data",
    }
    assert NameMask("/e", ["/data"]).masked(document) == {
        "stuck": {"first": [{"path": "name-1", "reason": "no name-1 and no ***: why"}]},
        "phase": "ready",
        "run": "name-2",
        "path": "/data",
        "text": "name-2 at /data",
    }
