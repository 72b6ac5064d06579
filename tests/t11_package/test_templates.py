"""Packer reads the templates of the image, those of the clouds too. No cloud is asked."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.support.checkout import ROOT

DEBIAN = Path("/etc/debian_version").read_text()
ANSIBLE = "#!/bin/sh\necho 'ansible-playbook [core 2.19.14]'\n"
TOKEN = b'{"token": {"expires_at": "2100-01-01T00:00:00.000000Z", "catalog": []}}'
BUILDERS = {"qemu", "amazon-ebs", "googlecompute", "openstack"}


class _Keystone(BaseHTTPRequestHandler):
    """Gives a token. The builder of OpenStack asks for one to check its own configuration."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(201)
        self.send_header("X-Subject-Token", "token")
        self.send_header("Content-Length", str(len(TOKEN)))
        self.end_headers()
        self.wfile.write(TOKEN)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def keystone() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Keystone)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v3"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def environ(tmp_path: Path, keystone: str) -> dict[str, str]:
    """What the tools of the clouds find in the environment, and variables of the templates."""
    if not DEBIAN.startswith("12"):
        pytest.skip("Debian has no Packer since 13")
    (tmp_path / "ansible-playbook").write_text(ANSIBLE)
    (tmp_path / "ansible-playbook").chmod(0o755)
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "CHECKPOINT_DISABLE": "1",
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "OS_AUTH_URL": keystone,
        "OS_USERNAME": "user",
        "OS_PASSWORD": "password",
        "OS_PROJECT_NAME": "project",
        "OS_DOMAIN_NAME": "Default",
        "PKR_VAR_gcp_project": "project",
        "PKR_VAR_package": str(tmp_path / "spillway.deb"),
        "PKR_VAR_ansible_playbook": str(tmp_path / "ansible-playbook"),
        "PKR_VAR_output": str(tmp_path),
        "PKR_VAR_key": str(key),
        "PKR_VAR_key_name": "key",
        "PKR_VAR_base": str(tmp_path / "base.raw"),
    }


def validate(environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = ["packer", "validate", str(ROOT / "packer")]
    return subprocess.run(command, env=environ, capture_output=True, text=True)


def test_all_templates_are_valid(environ: dict[str, str]) -> None:
    done = validate(environ)
    assert done.returncode == 0, done.stdout + done.stderr
    text = "".join(path.read_text() for path in (ROOT / "packer").glob("*.hcl"))
    sources = set(re.findall(r'^source "([a-z-]+)" "spillway"', text, re.MULTILINE))
    assert sources == set(re.findall(r'"source\.([a-z-]+)\.spillway"', text)) == BUILDERS


def test_a_template_that_is_not_valid_is_seen(environ: dict[str, str]) -> None:
    del environ["PKR_VAR_gcp_project"]
    done = validate(environ)
    assert done.returncode != 0
    assert "project_id" in done.stdout + done.stderr


def test_no_template_knows_a_site_or_a_secret() -> None:
    """What the image has must be right for every site."""
    words = re.compile(r"password\s*=|secret\s*=|access_key|bucket|endpoint", re.IGNORECASE)
    for path in (*(ROOT / "packer").glob("*.hcl"), ROOT / "ansible/image.yml"):
        text = re.sub(r"^\s*#.*$", "", path.read_text(), flags=re.MULTILINE)
        assert words.findall(text) == [], path
