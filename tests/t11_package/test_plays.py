"""Parts of the roles, run against a copy of this machine's files. Services are not started."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.t0_tidy.test_tidy import ROOT
from tests.t11_package import apart

PROGRAM = ROOT / "build/ansible/bin/ansible-playbook"
VALUES = {"spillway_started": False, "spillway_settings": {"bucket": {"name": "b"}}}
KEYS = {"spillway_access_key_id": "id", "spillway_secret_access_key": "s3cret"}
CREDENTIALS = "/etc/spillway/credentials"

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="make ansible-lint installs Ansible")


def play(directory: Path, role: str, tasks: str, *options: str, **values: Any) -> str:
    """Write a playbook that has some tasks of a role. Returns the command that plays it."""
    number = len(list(directory.glob("*.json")))
    host = {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3"}
    steps = [{"import_role": {"name": role, "tasks_from": tasks}}]
    book = directory / f"play{number}.json"
    book.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": steps}]))
    inventory = directory / f"inventory{number}.json"
    inventory.write_text(json.dumps({"all": {"hosts": {"here": {**host, **VALUES, **values}}}}))
    environ = ["env", f"ANSIBLE_ROLES_PATH={ROOT / 'ansible/roles'}", "ANSIBLE_HOME=/mnt/home"]
    return shlex.join([*environ, str(PROGRAM), "-i", str(inventory), str(book), *options])


def test_credentials_go_with_their_variable_unless_another_wrote_them(tmp_path: Path) -> None:
    written = play(tmp_path, "spillway", "configure", **KEYS)
    emptied = play(tmp_path, "spillway", "configure")
    script = [
        *(f"{written} >&2", f"grep s3cret {CREDENTIALS}", f"{emptied} >&2"),
        *(f"ls {CREDENTIALS} || echo gone", f"echo mine > {CREDENTIALS}", f"{emptied} >&2"),
        f"cat {CREDENTIALS}",
    ]
    said = apart.said("\n".join(script), tmp_path)
    assert said == "aws_secret_access_key = s3cret\ngone\nmine\n"


def test_a_difference_that_is_shown_has_no_password(tmp_path: Path) -> None:
    settings = {"namespace": {"url": "postgresql://u:s3cret@h/s"}}
    command = play(tmp_path, "spillway", "configure", "--diff", spillway_settings=settings)
    said = apart.said(f"{command} && grep -c s3cret /etc/spillway/spillway.toml", tmp_path)
    assert said.count("s3cret") == 0 and said.endswith("\n1\n")


@pytest.mark.parametrize("note", ["", json.dumps({"from": "1", "to": "2", "migrated": False})])
def test_a_note_of_another_upgrade_is_no_way_back(note: str, tmp_path: Path) -> None:
    command = play(tmp_path, "spillway", "rollback")
    script = ["mkdir -p /var/cache/spillway && cd /var/cache/spillway"]
    if note:
        script.append(f"echo {shlex.quote(note)} > last.json")
    said = apart.said("\n".join([*script, f"{command} || true"]), tmp_path)
    assert ("do not know the way back" if note else "upgraded nothing, or went back") in said
