"""Builds the Debian package: ``python -m package.build PLUGIN OUTPUT``.

The package has everything that runs: the virtual environment with the pinned wheels, compiled, the
plugin of the NFS server, units, completion and documents. Nothing is fetched when it is installed.
Two builds of one commit give the same bytes: times are those of the commit (SOURCE_DATE_EPOCH), and
no path of the machine that built it is inside.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from package.lock import ROOT, lock_file

HERE = Path(__file__).parent
CODE = ("admin_api", "fsal", "gateway", "migrations")
NOT_CODE = ("__pycache__", "native", "*.md")
"""What Python does not need of these directories when it runs."""
PREFIX = Path("usr/lib/spillway")
UNITS = Path("usr/lib/systemd/system")
COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/spillway",
    "zsh": "usr/share/zsh/vendor-completions/_spillway",
}
_PYVENV = "home = /usr/bin\ninclude-system-site-packages = false\nversion = {version}\n"
_METADATA = "Metadata-Version: 2.1\nName: spillway\nVersion: {version}\n"
_SCRIPT = """\
#!/usr/lib/spillway/venv/bin/python3 -I
import sys

from gateway.cli.main import main

sys.exit(main())
"""


def build(plugin: Path, output: Path, version: str | None = None) -> Path:
    """Build the package.

    Args:
        plugin: libfsalpython.so.
        output: the directory that takes the package.
        version: in place of that of pyproject.toml.

    Returns:
        Its path.

    Raises:
        CalledProcessError: a tool fails; its own message is on stderr.
    """
    version = version or project_version()
    environ = reproducible()
    os.umask(0o022)
    with tempfile.TemporaryDirectory(prefix="spillway-package-") as scratch:
        stage = Path(scratch) / "tree"
        _environment(stage, version, environ)
        _plugin(plugin, stage)
        _program(stage, environ)
        _copies(stage)
        for name in ("postinst", "prerm", "postrm"):
            copied = stage / "DEBIAN" / name
            copied.parent.mkdir(exist_ok=True)
            shutil.copy(HERE / "debian" / name, copied)
            copied.chmod(0o755)
        package = output / f"spillway_{debian_version(version)}_{_machine()}.deb"
        fields = {"machine": _machine(), "ganesha": _query("Version", "nfs-ganesha")}
        return deb(stage, "control.in", package, version, environ, fields)


def deb(
    stage: Path,
    template: str,
    package: Path,
    version: str,
    environ: Mapping[str, str],
    fields: Mapping[str, str],
) -> Path:
    """Build a package of a tree.

    Args:
        stage: the tree, with the scripts of dpkg, if there are any.
        template: the file below ``package/debian`` that becomes its control file.
        package: the path that it gets.
        version: of the project.
        environ: as of ``reproducible``.
        fields: more fields of the template.

    Returns:
        Its path.
    """
    _control(stage, template, version, fields)
    _normalise(stage, int(environ["SOURCE_DATE_EPOCH"]))
    package.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        # The default, xz, takes ten times as long and gives other bytes with other processors.
        ["dpkg-deb", "--root-owner-group", "-Zzstd", "-z9", "--build", stage, package],
        env=environ, check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return package


def reproducible() -> dict[str, str]:
    """Return an environment in which two builds of a commit give the same bytes."""
    return {**os.environ, "SOURCE_DATE_EPOCH": _epoch(), "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def project_version() -> str:
    """Return the version of Spillway, which pyproject.toml declares."""
    found = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(found["project"]["version"])


def debian_version(version: str) -> str:
    """Return the version of the package. That for a newer Debian is the higher one, so that an
    upgrade of the system also replaces the package."""
    release = Path("/etc/debian_version").read_text(encoding="ascii").split(".")[0].strip()
    return f"{version}+deb{release}"


def _epoch() -> str:
    """Return SOURCE_DATE_EPOCH, by default the time of the commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is not None:
        return given
    command = ["git", "log", "-1", "--format=%ct"]
    return subprocess.check_output(command, cwd=ROOT, text=True).strip()


def _machine() -> str:
    return subprocess.check_output(["dpkg", "--print-architecture"], text=True).strip()


def _query(field: str, package: str) -> str:
    return subprocess.check_output(["dpkg-query", "-W", "-f", f"${{{field}}}", package], text=True)


def _site(stage: Path) -> Path:
    python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return stage / PREFIX / "venv/lib" / python / "site-packages"


def _environment(stage: Path, version: str, environ: Mapping[str, str]) -> None:
    """Make the virtual environment by hand: what ``venv`` writes has the path of the build."""
    site = _site(stage)
    venv = stage / PREFIX / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/python3").symlink_to("/usr/bin/python3")
    full = ".".join(map(str, sys.version_info[:3]))
    (venv / "pyvenv.cfg").write_text(_PYVENV.format(version=full))
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-compile"),
            *("--target", str(site), "--requirement", str(lock_file())),
        ],
        env=environ, check=True,
    )  # fmt: skip
    # The programs of the libraries name the interpreter of the build, and no one needs them.
    shutil.rmtree(site / "bin", ignore_errors=True)
    for name in CODE:
        shutil.copytree(ROOT / name, site / name, ignore=shutil.ignore_patterns(*NOT_CODE))
    about = site / f"spillway-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(_METADATA.format(version=version))
    (about / "INSTALLER").write_text("dpkg\n")
    compile_all(stage, site, environ)


def compile_all(stage: Path, site: Path, environ: Mapping[str, str]) -> None:
    """Compile the modules below a directory of a tree."""
    # The hash in the place of the time of the source: times of files never decide what runs.
    # Sets in constants are in the order of their hashes, hence the seed.
    subprocess.run(
        [
            *("/usr/bin/python3", "-I", "-m", "compileall", "-q", "-j", "1"),
            *("--invalidation-mode", "unchecked-hash", "-s", str(stage), "-p", "/", str(site)),
        ],
        env={**environ, "PYTHONHASHSEED": "0"}, check=True,
    )  # fmt: skip


def _plugin(plugin: Path, stage: Path) -> None:
    target = stage / PREFIX / plugin.name
    shutil.copy(plugin, target)
    subprocess.run(["strip", "--strip-unneeded", target], check=True)


def _program(stage: Path, environ: Mapping[str, str]) -> None:
    """Write the command, and the scripts by which shells complete it."""
    (stage / "usr/bin").mkdir()
    command = stage / "usr/bin/spillway"
    command.write_text(_SCRIPT)
    command.chmod(0o755)
    run = "import sys; sys.path.insert(0, sys.argv.pop(1)); from gateway.cli.main import main; "
    for shell, name in COMPLETIONS.items():
        path = stage / name
        path.parent.mkdir(parents=True)
        argv = ["/usr/bin/python3", "-I", "-B", "-c", f"{run} main()", str(_site(stage))]
        path.write_bytes(subprocess.check_output([*argv, "completion", shell], env=environ))


def _copies(stage: Path) -> None:
    """Copy units, documents and examples."""
    shutil.copytree(HERE / "systemd", stage / UNITS)
    documents = stage / "usr/share/doc/spillway"
    (documents / "gateway").mkdir(parents=True)
    for name in ("docs", "examples"):
        shutil.copytree(ROOT / name, documents / name)
    for name in (*("README", "CHANGELOG", "SECURITY"), "gateway/SEMANTICS", "gateway/CONCURRENCY"):
        shutil.copy(ROOT / f"{name}.md", documents / f"{name}.md")
    shutil.copy(ROOT / "LICENSE", documents / "copyright")


def _control(stage: Path, template: str, version: str, more: Mapping[str, str]) -> None:
    """Write what dpkg reads beside the scripts: the fields, and the digests of all files."""
    control = stage / "DEBIAN"
    control.mkdir(exist_ok=True)
    major, minor = sys.version_info[:2]
    fields = {
        "version": debian_version(version),
        "python": f"python3 (>= {major}.{minor}), python3 (<< {major}.{minor + 1})",
        "libpython": f"libpython{major}.{minor}",
        "size_kib": (sum(path.stat().st_size for path in _files(stage)) + 1023) // 1024,
        **more,
    }
    text = (HERE / "debian" / template).read_text(encoding="utf-8")
    (control / "control").write_text(text.format(**fields), encoding="utf-8")
    (control / "md5sums").write_text(
        "".join(
            f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(stage)}\n"
            for path in _files(stage)
            if not path.is_relative_to(control)
        )
    )


def _files(stage: Path) -> Iterator[Path]:
    return (path for path in sorted(stage.rglob("*")) if path.is_file() and not path.is_symlink())


def _normalise(stage: Path, epoch: int) -> None:
    """Give all files the times and modes that do not depend on where they were made."""
    for path in (stage, *stage.rglob("*")):
        if not path.is_symlink():
            runs = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if runs else 0o644)
        os.utime(path, (epoch, epoch), follow_symlinks=False)


def main() -> int:
    """Build the package and print its path. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m package.build", description=__doc__)
    parser.add_argument("plugin", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--version", help="in place of that of pyproject.toml")
    args = parser.parse_args()
    try:
        print(build(args.plugin, args.output, args.version))
    except subprocess.CalledProcessError as exc:
        print(f"package: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
