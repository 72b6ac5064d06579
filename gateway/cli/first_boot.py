"""Command `spillway first-boot`: makes a gateway of a machine that was started from an image.

Everything that the site says is checked before anything is done. Each step can be done again, so
after an error, or a power cut, the next boot with a corrected drive continues. The unit
configure-spillway does not run any more once all is done.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from gateway.appliance import machine as system
from gateway.appliance import site
from gateway.appliance.machine import apply, mount, require
from gateway.appliance.site import Site
from gateway.cli import caller
from gateway.cli.init import FORMER
from gateway.common import files
from gateway.common.errors import UserError
from gateway.config import loader

PROGRAM = "/usr/bin/spillway"
USER = "spillway"
GATEWAY = "spillway.target"
DONE = system.OWN / "done"
NEEDS_A_PERSON = 1
"""The exit status of a restore that names what is lost."""
TOKEN_NAME = "first boot"
CONSOLES = Path("/sys/class/tty/console/active")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--check", metavar="FILE", type=Path, help="only say whether a file is right"
    )
    parser.add_argument(
        "--prepare-token", metavar="NAME", help="make an admin's token for the file; store none"
    )


def run(args: argparse.Namespace) -> int:
    """Configure this machine. Returns 0, also if it was done before. Raises UserError."""
    if args.check is not None:
        for warning in site.warnings(_read(args.check.read_text(encoding="utf-8"))):
            print(f"{args.check}: warning: {warning}", file=sys.stderr)
        print(f"{args.check}: right")
        return 0
    if args.prepare_token is not None:
        return _prepare_token(args.prepare_token)
    if DONE.exists():
        print(f"the first boot is over ({DONE}): nothing to do")
        return 0
    if os.getuid() != 0:
        raise UserError("only root can configure the machine: the unit configure-spillway does")
    try:
        # A gateway of before would keep its clients, its credentials and its data directory, over
        # which a new disk is mounted. At a boot, its services wait for this unit: this takes their
        # start back, so none starts when this fails.
        system.run("systemctl", "stop", GATEWAY)
        wanted = _read(system.text())
        for warning in site.warnings(wanted):
            _show(f"spillway: warning: {warning}")
        _configure(wanted)
    except (UserError, OSError) as exc:
        # The journal gets the first line by the way of all errors.
        _console(f"spillway: first boot: {exc}")
        _show("spillway: the gateway is not started: correct that, and boot again")
        raise UserError(f"first boot: {exc}") from None
    return 0


def _read(text: str) -> Site:
    """Read a site's file. Raises UserError, also if it leaves the machine unreachable."""
    wanted = site.read(text)
    site.require(wanted)
    return wanted


def _configure(wanted: Site) -> None:
    machine = wanted.machine
    if machine.data_device != Path():
        require(machine.data_device)
    apply(machine)
    if machine.data_device != Path():
        _say(mount(machine.data_device))
    _own(site.DATA_DIR, 0o700)
    _write_configuration(wanted)
    if machine.restore:
        _restore()
    else:
        _spillway("init")
    if wanted.policies:
        _say(_spillway("policy", "set", "-", stdin=json.dumps({"policy": wanted.policies})))
    for export in wanted.exports:
        path = f"{wanted.settings.nfs.export}/{export.path}".rstrip("/")
        if export.path:
            _spillway("mkdir", "-p", path)
        clients = [word for client in export.clients for word in ("--client", client)]
        options = ("--path", path, *clients, "--squash", export.squash)
        _say(_spillway("export", "set", export.name, *options))
    _bring_token(wanted.token, keeps=machine.restore)
    # A boot after DONE must start the gateway, so this comes first: a power cut between the two has
    # the next boot do all of it again, and the services wait for that.
    system.run("systemctl", "enable", "--quiet", GATEWAY)
    DONE.parent.mkdir(mode=0o755, exist_ok=True)
    files.replace(DONE, "The unit configure-spillway has done its work.\n", 0o644)
    # After DONE: without it, the next boot would find no file that cloud-init writes once.
    system.forget()
    # The services start after this unit has ended: to wait for them here would never end.
    system.run("systemctl", "start", "--no-block", GATEWAY)
    _show("spillway: the gateway is configured, and starts")


def _write_configuration(wanted: Site) -> None:
    # The gateway adds the id of its namespace there, and (sticky bit) replaces nothing of root's.
    _own(site.CONFIG.parent, 0o1770, "root")
    # Only root and the gateway may read it: a URL of a database may have a password.
    text = loader.render(wanted.values)
    former = site.CONFIG.with_name(f"{site.CONFIG.name}{FORMER}")
    if not (wanted.machine.restore and former.exists() and former.read_text() == text):
        # A boot that is repeated must not undo what a restore has completed.
        files.replace(site.CONFIG, text, 0o640)
        shutil.chown(site.CONFIG, "root", USER)
    keys = wanted.credentials
    if keys.access_key_id:
        lines = (
            "[default]",
            f"aws_access_key_id = {keys.access_key_id}",
            f"aws_secret_access_key = {keys.secret_access_key}",
        )
        files.replace(site.CREDENTIALS, "".join(f"{line}\n" for line in lines), 0o600)


def _restore() -> None:
    """Bring everything back from the bucket, in place of a new gateway. Raises UserError."""
    # What the site does not say is taken from the copy. Only its owner may complete the file.
    shutil.chown(site.CONFIG, USER, USER)
    done = subprocess.run(
        # As root, who can read the credentials: the command becomes the user of the gateway.
        [PROGRAM, "restore", "--if-none"], capture_output=True, text=True, cwd="/",
        env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LANG": "C.UTF-8"},
    )  # fmt: skip
    _say(done.stderr + done.stdout)
    if done.returncode not in (0, NEEDS_A_PERSON):
        raise UserError(f"spillway restore: {_one_line(done)}")
    if done.returncode == NEEDS_A_PERSON:
        _show("spillway: something is lost: the journal of configure-spillway names it")
    shutil.chown(site.CONFIG, "root", USER)
    site.CONFIG.chmod(0o640)


def _own(directory: Path, mode: int, owner: str = USER) -> None:
    directory.mkdir(mode=mode, parents=True, exist_ok=True)
    shutil.chown(directory, owner, USER)
    directory.chmod(mode)


def _prepare_token(name: str) -> int:
    # The import is here because every command imports this module.
    from admin_api.access.principal import Role
    from admin_api.access.tokens import made

    token, text = made(name, Role.ADMIN, None, caller.name())
    print(f'[admin_token]\nid = "{token.id}"\nhash = "{token.hash}"', flush=True)
    print(f"{text}\nthe file needs the lines above, and you need this token", file=sys.stderr)
    return 0


def _bring_token(given: site.AdminToken | None, *, keeps: bool) -> None:
    """Add the token of the file. Without one make a token, and show it on the consoles only. One
    that a first boot made that was cut short ends.

    Args:
        given: the token of the file.
        keeps: whether tokens that are there, as after a restore, are enough.
    """
    if given is not None:
        _say(_spillway("token", "add", "--name", TOKEN_NAME, given.id, given.hash))
        return
    tokens = json.loads(_spillway("token", "list", "--json"))
    if keeps and any(token["state"] == "valid" for token in tokens):
        return
    for token in tokens:
        if token["name"] == TOKEN_NAME and token["state"] == "valid":
            _spillway("token", "revoke", token["id"])
    made = _spillway("token", "create", "--role", "admin", "--name", TOKEN_NAME, "--json")
    _console(
        f"spillway: the token of the admin pages, shown this once: {json.loads(made)['token']}"
    )


def _spillway(*words: str, stdin: str = "") -> str:
    """Run a command as the user of the gateway. Returns what it says. Raises UserError."""
    done = subprocess.run(
        [PROGRAM, *words],
        input=stdin, capture_output=True, text=True, user=USER, group=USER, extra_groups=[],
        cwd="/", env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LANG": "C.UTF-8"},
    )  # fmt: skip
    if done.returncode != 0:
        raise UserError(f"spillway {words[0]}: {_one_line(done)}")
    return done.stdout


def _one_line(done: subprocess.CompletedProcess[str]) -> str:
    output = (done.stderr or done.stdout).strip().removeprefix("spillway: ")
    return " ".join(output.split())


def _say(text: str) -> None:
    """Tell the journal."""
    print(text.strip(), flush=True)


def _show(line: str) -> None:
    """Tell the journal and the consoles."""
    _say(line)
    _console(line)


def _console(line: str) -> None:
    for name in CONSOLES.read_text(encoding="ascii").split():
        with suppress(OSError), Path("/dev", name).open("w", encoding="utf-8") as console:
            print(f"\r\n{line}\r", file=console)
    sys.stdout.flush()
