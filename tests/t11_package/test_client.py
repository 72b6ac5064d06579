"""The client without a gateway: its wheel in an environment of its own, and its Debian package."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from package import client
from package.build import project_version
from package.without import Reduced
from tests.support.clisite import environ
from tests.support.t10 import remote as shared
from tests.support.t10.remote import Remote, Run
from tests.support.t11 import apart

remote = shared.remote
run = shared.run

LIBRARIES = (
    "alembic",
    "awscrt",
    "boto3",
    "botocore",
    "fastapi",
    "psycopg",
    "pydantic",
    "sqlalchemy",
)
IMPORT_ALL = """
import importlib, pkgutil, gateway
for module in pkgutil.walk_packages(gateway.__path__, "gateway."):
    importlib.import_module(module.name)
    print(module.name)
"""

Client = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return client.wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """An environment with the wheel, what it depends on as it is pinned, and nothing else."""
    made = tmp_path_factory.mktemp("client") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True)
    lock = made / "lock.txt"
    lock.write_text("\n".join(client.pins()))
    pip = (sys.executable, "-m", "pip", "--python", str(made / "bin/python"))
    install = (*pip, "install", "--quiet", "--disable-pip-version-check", "--no-deps")
    subprocess.run([*install, "--require-hashes", "--requirement", lock], check=True)
    subprocess.run([*install, wheel], check=True)
    subprocess.run([*pip, "check"], check=True)
    return made


@pytest.fixture(scope="module")
def spillway(venv: Path) -> Client:
    """Run the client to its end."""

    def ran(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(venv / "bin/spillway"), *words]
        return subprocess.run(command, env=environ(), capture_output=True, text=True, timeout=60)

    return ran


def test_each_module_can_be_imported_without_the_libraries_of_a_gateway(venv: Path) -> None:
    python = str(venv / "bin/python")
    finds = f"import importlib.util; print([*map(importlib.util.find_spec, {LIBRARIES})])"
    found = subprocess.check_output([python, "-I", "-c", finds], text=True)
    assert found.strip() == str([None] * len(LIBRARIES))
    said = subprocess.run([python, "-I", "-c", IMPORT_ALL], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    modules = said.stdout.split()
    assert "gateway.cli.client" in modules
    assert "gateway.drain.worker" not in modules


def test_a_statement_that_needs_a_library_is_left_out_with_what_needs_it(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(
        "import library\nfrom library import one, two\n\nA = [\n    one(),\n]\nB = 1\n\n\n"
        "def late():\n    return A\n\n\ndef early(x=A):\n    return x\n"
    )
    (tmp_path / "uses.py").write_text(
        "import made\nfrom made import A, B, late\n\nC = late()\nD = made.A\nE = B\nF = lambda: A\n"
    )
    sources = Reduced(tmp_path, ["uses"], ["library"]).sources()
    made, uses = (sources[Path(f"{name}.py")].splitlines() for name in ("made", "uses"))
    assert [(number, line) for number, line in enumerate(made, 1) if line] == [
        (7, "B = 1"),
        (10, "def late():"),
        (11, "    return A"),
    ]
    assert [line for line in uses if line] == [
        "import made",
        "from made import B, late",
        "E = B",
        "F = lambda: A",
    ]


def timeless(text: str) -> str:
    """Return a text without the ages in it."""
    return re.sub(r'(_seconds": )[0-9.]+', r"\1…", text)


def test_commands_ask_a_gateway(spillway: Client, remote: Remote, run: Run) -> None:
    for words in (
        ("checkpoint", "list", "--json"),
        ("ls", "-l", "/checkpoints/jobs"),
        ("wait", "--durable", "--timeout", "20", "/checkpoints/jobs/a/step-4"),
    ):
        done = spillway(*remote.options(), *words)
        status, out, _err = run(*words)
        assert (done.returncode, timeless(done.stdout)) == (status, timeless(out)), done.stderr
    state = spillway(*remote.options("viewer"), "status", "--json")
    assert json.loads(state.stdout)["healthy"] is False, state.stderr
    wrong = spillway(*remote.options(), "checkpoint", "pin", "--note", "x" * 9000, "jobs/a")
    # Its version is that of the gateway: what is wrong is not the version.
    assert (wrong.returncode, "it is Spillway" in wrong.stderr) == (2, False), wrong.stderr
    late = spillway(*remote.options(), "wait", "--durable", "--timeout", "1", "jobs/b/step-1")
    assert (late.returncode, "is not durable after 1 s" in late.stderr) == (1, True), late.stderr


def test_what_the_client_cannot_do_says_where_it_can_be_done(spillway: Client) -> None:
    for words, remedy in (
        (("status",), "name the gateway with --gateway URL or SPILLWAY_GATEWAY"),
        (("fsck",), "run it on the gateway's machine"),
        (("bucket", "verify"), "run it on the gateway's machine"),
        (("--gateway", "http://127.0.0.1:1", "fsck"), "runs on the gateway only"),
    ):
        done = spillway(*words)
        assert (done.returncode, remedy in done.stderr) == (2, True), done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert "checkpoint" in spillway("completion", "bash").stdout
    plan = spillway("plan", "--parameters", "1B", "--interval", "1h")
    assert (plan.returncode, plan.stderr) == (0, "")
    assert spillway("--version").stdout == f"spillway {project_version()}+client\n"


@pytest.mark.skipif(not shared.CLIENT, reason="it takes long: make client-test")
def test_the_debian_package_has_the_client_and_no_gateway(wheel: Path, tmp_path: Path) -> None:
    package = client.package(wheel, tmp_path)
    named = "${Package}|${Depends}|${Conflicts}|${Architecture}"
    show = ["dpkg-deb", "--show", "--showformat", named, str(package)]
    minor = sys.version_info[1]
    python = f"python3 (>= 3.{minor}), python3 (<< 3.{minor + 1})"
    said = subprocess.check_output(show, text=True)
    assert said == f"spillway-client|{python}|spillway|all"
    root = tmp_path / "root"
    subprocess.run(["dpkg-deb", "--extract", package, root], check=True)
    files = [path for path in root.rglob("*") if path.is_file()]
    site = root / client.SITE
    assert not {path.name for path in site.iterdir()} & {*LIBRARIES, "admin_api", "fsal", "bin"}
    assert [path for path in files if path.suffix == ".so"] == []
    for word in (str(tmp_path), str(wheel.parent)):
        assert [path for path in files if word.encode() in path.read_bytes()] == []
    documents = root / "usr/share/doc/spillway-client"
    assert (documents / "examples/slurm/prolog").stat().st_mode & 0o111
    installed = f"""
        dpkg -i {package} >/dev/null
        cd / && /usr/bin/spillway --version
        dpkg -r spillway-client >/dev/null
        [ ! -e /usr/lib/spillway-client ] && [ ! -e /usr/bin/spillway ]
    """
    assert apart.said(installed, tmp_path) == f"spillway {client.client_version()}\n"
