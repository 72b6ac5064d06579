"""A command of root runs as the owner of the data directory, and reads what only root may."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.cli.support import UNITS
from tests.support.clisite import PROGRAM, environ
from tests.support.ports import free_port

NOBODY = 65534
POLICY = '[[policy]]\nname = "mine"\nrun = "jobs/b"\nkeep_newest = 1\n'

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root gives these commands")


class Owned:
    """A gateway of an ordinary user, whose credentials only root may read."""

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        self.config = directory / "spillway.toml"
        self.secret = directory / "secret"
        self.secret.mkdir(mode=0o700)
        self.credentials = directory / "credentials"
        self.credentials.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
        self.credentials.chmod(0o600)
        self.data.mkdir(mode=0o700)
        os.chown(directory, NOBODY, NOBODY)
        os.chown(self.data, NOBODY, NOBODY)
        where = ("--data-dir", str(self.data), "--bucket", "b")
        away = ("--endpoint-url", f"http://127.0.0.1:{free_port()}")
        made = self.spillway("init", *where, *away, user=NOBODY)
        assert made.returncode == 0, made.stderr

    def spillway(self, *words: str, user: int = 0) -> subprocess.CompletedProcess[str]:
        variables = {**environ(), "SPILLWAY_BUCKET_CREDENTIALS_FILE": str(self.credentials)}
        command = [str(PROGRAM), words[0], "--config", str(self.config), *words[1:]]
        return subprocess.run(
            command, env=variables, capture_output=True, text=True, user=user, group=user
        )

    def owners(self) -> set[int]:
        return {path.lstat().st_uid for path in self.data.rglob("*")}


@pytest.fixture
def owned() -> Iterator[Owned]:
    directory = Path(tempfile.mkdtemp(prefix="spillway-owned-"))
    try:
        yield Owned(directory)
    finally:
        shutil.rmtree(directory)


def test_what_root_orders_leaves_nothing_of_roots(owned: Owned) -> None:
    for words in (
        ("mkdir", "a"),
        ("export", "set", "/e", "--client", "10.0.0.0/8 ro"),
        ("token", "create", "--role", "viewer"),
        ("fsck",),
        ("status",),
    ):
        done = owned.spillway(*words)
        # Nothing runs: status says so, and names are not changed.
        expected = {"status": 1, "mkdir": 2}.get(words[0], 0)
        assert done.returncode == expected, (words, done.stderr)
        assert owned.owners() == {NOBODY}, words
    again = owned.spillway("export", "set", "/e", "--client", "10.1.0.0/16 ro", user=NOBODY)
    assert again.returncode == 0, again.stderr


def test_it_reads_first_what_only_root_may_read(owned: Owned) -> None:
    asked = owned.spillway("bucket", "test")
    assert "cannot reach" in asked.stdout + asked.stderr, asked
    refused = owned.spillway("bucket", "test", user=NOBODY)
    assert "Permission denied" in refused.stdout + refused.stderr, refused
    policies = owned.secret / "policies.toml"
    policies.write_text(POLICY)
    stored = owned.spillway("policy", "set", str(policies))
    assert stored.returncode == 0, stored.stderr
    told = owned.spillway("policy", "show", "mine").stdout
    assert "by root" in told or f"by {os.environ.get('SUDO_USER')}" in told, told


def test_a_support_bundle_of_root_is_roots_and_leaves_nothing_of_roots(owned: Owned) -> None:
    assert owned.spillway("token", "create", "--role", "viewer").returncode == 0
    (owned.data / "log" / "a.log").write_text("has aws_secret_access_key = b\n")
    (owned.data / "log" / "a.log").chmod(0o600)
    os.chown(owned.data / "log" / "a.log", NOBODY, NOBODY)
    made = owned.spillway("support-bundle", "--json", str(owned.secret / "bundle.tar.gz"))
    facts = json.loads(made.stdout)
    assert (owned.secret / "bundle.tar.gz").stat().st_uid == 0
    assert {"status.json", "audit.json", "database.json", "logs/a.log"} <= facts["parts"].keys()
    assert facts["failed"].keys() <= {f"logs/journal-{unit}.txt" for unit in UNITS}
    assert owned.owners() == {NOBODY}
