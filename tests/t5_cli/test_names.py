"""`spillway ls`, `stat`, `mkdir`, `mv` and `rm`. The namespace itself answers over the control
socket."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from gateway.cli.main import main
from gateway.cli.up import prepared
from gateway.common.text import printable, text_of
from gateway.common.types import ROOT_CRED, SetAttr
from gateway.config import datadir
from gateway.db.models import ROOT_INO
from gateway.namespace.data_files import DataFiles
from gateway.namespace.lookup import Browser, NamedInode
from gateway.rpc.control import opened
from gateway.rpc.frames import Op, RpcRequest
from gateway.rpc.removal import TreeRemoval
from gateway.service.names import Names
from tests.support.clisite import Site
from tests.support.namespace import Namespace
from tests.support.t5.names import run
from tests.support.volumes import query

pytestmark = pytest.mark.usefixtures("control_socket_of_namespace")
MODE = SetAttr(mode=0o644)
TREE = int(os.environ.get("SPILLWAY_CONTROL_FILES", "10000"))


def facts(site: Site, path: str) -> dict[str, Any]:
    [found] = json.loads(run(site, "stat", "--json", path))
    assert isinstance(found, dict)
    return found


def make_file(site: Site, path: str, data: bytes, is_open: bool = False) -> None:
    """A file with bytes, as the server leaves it; is_open: as it is while a client writes."""
    namespace = Namespace(site.settings)
    try:
        parent = ROOT_INO
        *directories, name = path.encode().split(b"/")
        for directory in directories:
            parent = namespace.lookup(parent, directory).ino
        attr = namespace.create(ROOT_CRED, parent, name, MODE)
        namespace.files.path(attr.ino, attr.epoch).write_bytes(data)
    finally:
        namespace.close()
    if not is_open:
        Namespace(site.settings).close()  # the next start seals it


def test_a_tree_is_made_moved_listed_and_removed(site: Site) -> None:
    run(site, "mkdir", "-p", "/checkpoints/run/step-1", "run/step-2", "run/step-2/a/b/c/d/e")
    make_file(site, "run/step-1/model", b"bytes")
    assert run(site, "ls") == "run\n"
    assert run(site, "ls", "run") == run(site, "ls", "/checkpoints/run") == "step-1\nstep-2\n"
    assert "-rw-r--r--" in (long := run(site, "ls", "-l", "run/step-1"))
    assert " 5 " in long
    run(site, "mv", "run/step-1", "run/latest")
    run(site, "mv", "run/latest/model", "run/step-2")
    assert run(site, "ls", "run", "run/step-2") == "run:\nlatest\nstep-2\n\nrun/step-2:\na\nmodel\n"
    data = DataFiles(site.settings.files_dir)
    assert len(list(data.walk())) == 1
    assert "9 names removed" in run(site, "rm", "-r", "run")
    assert run(site, "ls") == ""
    # No client can have it open.
    assert list(data.walk()) == []
    assert run(site, "fsck") == "0 problems found, 0 left\n"


def test_directories_get_owners_and_modes(site: Site) -> None:
    def told(path: str) -> tuple[str, int, int]:
        return tuple(facts(site, path)[name] for name in ("mode", "uid", "gid"))

    run(site, "mkdir", "-p", "--owner", "1000:2000", "-m", "2770", "team/a")
    assert told("team") == told("team/a") == ("2770", 1000, 2000)
    run(site, "chown", "3000", "team")
    run(site, "chown", ":4000", "team/a")
    assert (told("team"), told("team/a")) == (("2770", 3000, 2000), ("2770", 1000, 4000))
    run(site, "chmod", "1777", "/", "team")
    assert (told("/"), told("team")) == (("1777", 0, 0), ("1777", 3000, 2000))
    # The group of a setgid directory, as for a client.
    run(site, "mkdir", "team/a/b")
    assert told("team/a/b") == ("2755", 0, 4000)
    for wrong in ("alice", ":", "", "1:x", "-1", "4294967295", "\N{SUPERSCRIPT TWO}"):
        assert "as `id` shows them" in run(site, "chown", "--", wrong, "team", status=2)
    assert "no such file" in run(site, "chown", "1", "none", status=1)
    assert "kept for the gateway" in run(site, "chmod", "777", ".spillway", status=1)


def test_mv_is_rename(site: Site) -> None:
    run(site, "mkdir", "a", "b", "full")
    run(site, "mkdir", "full/one")
    make_file(site, "old", b"old")
    make_file(site, "new", b"new")
    old = facts(site, "old")["ino"]
    run(site, "mv", "old", "new")
    assert facts(site, "new")["ino"] == old
    # Into a directory that is there, several at a time.
    run(site, "mv", "new", "a", "full")
    assert run(site, "ls", "full") == "a\nnew\none\n"
    assert "named twice" in run(site, "mv", "full/one", "a/one/", "full", status=2)
    assert "below itself" in run(site, "mv", "full", "full/a", status=1)
    run(site, "mkdir", "b/full")
    run(site, "mkdir", "b/full/x")
    assert "not empty" in run(site, "mv", "full", "b", status=1)
    assert "no such file" in run(site, "mv", "nothing", "b", status=1)
    assert "not a directory" in run(site, "mv", "a", "b", "nowhere", status=2)
    assert "cannot be moved" in run(site, "mv", "/checkpoints", "b", status=1)


def test_a_change_is_told_as_made_although_another_client_moves_it_at_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is read after a change: the rename would seem to have failed."""
    run(site, "mkdir", "a")
    move = Names.move

    def and_away(names: Names, path: str, target: str, *, is_alone: bool) -> str:
        made = move(names, path, target, is_alone=is_alone)
        move(names, made, "elsewhere")
        return made

    monkeypatch.setattr(Names, "move", and_away)
    assert main(["mv", "--config", str(site.config), "a", "b"]) == 0
    assert facts(site, "elsewhere")["kind"] == "directory"


def test_what_cannot_be_done_says_what_to_do(site: Site) -> None:
    run(site, "mkdir", "d")
    make_file(site, "d/f", b"")
    assert "spillway rm -r" in run(site, "rm", "d", status=1)
    assert "root cannot be removed" in run(site, "rm", "-r", "/", status=1)
    assert "no such file" in run(site, "rm", "x", status=1)
    assert run(site, "rm", "-f", "x") == ""
    assert "there already" in run(site, "mkdir", "d", status=1)
    assert run(site, "mkdir", "-p", "d") == ""
    assert "is not a directory" in run(site, "mkdir", "-p", "d/f/g", status=1)
    assert "kept for the gateway" in run(site, "mkdir", ".spillway", status=1)
    assert "kept for the gateway" in run(site, "mv", "d", "/.spillway", status=1)
    assert "a name has at most 255 bytes" in run(site, "mkdir", "n" * 256, status=1)
    assert "no such file" in run(site, "ls", "d", "x", status=1)
    assert run(site, "mkdir", "-m", "9", "e", status=2)
    # What can be done is done.
    assert "no such file" in run(site, "rm", "x", "d/f", status=1)
    assert run(site, "ls", "d") == ""


def test_symbolic_links_are_named_not_followed(site: Site) -> None:
    run(site, "mkdir", "d")
    with opened(site.settings) as control:
        [answer] = control.run([RpcRequest(Op.SYMLINK, ROOT_INO, b"latest", name2=b"d")])
        assert answer.errno == 0
    assert "latest -> d" in run(site, "ls", "-l")
    assert facts(site, "latest")["target"] == "d"
    assert "a symbolic link to d" in run(site, "ls", "latest/x", status=1)
    run(site, "rm", "latest")
    assert run(site, "ls") == "d\n"


def test_a_symbolic_link_is_removed_while_it_is_shown(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Browser.target
    with opened(site.settings) as control:

        def target_later(browser: Browser, ino: int) -> bytes | None:
            control.run([RpcRequest(Op.REMOVE, ROOT_INO, b"latest")])
            return target(browser, ino)

        def show(*command: str, status: int = 0) -> str:
            control.run([RpcRequest(Op.SYMLINK, ROOT_INO, b"latest", name2=b"d")])
            return run(site, *command, status=status)

        monkeypatch.setattr(Browser, "target", target_later)
        assert "latest -> (removed)\n" in show("ls", "-l")
        assert '"target": null' in show("ls", "--json")
        assert "a symbolic link to (removed)" in show("ls", "latest/x", status=1)


def test_what_is_being_written_has_the_size_of_its_data_file(site: Site) -> None:
    make_file(site, "f", b"12345", is_open=True)
    document = facts(site, "f")
    assert (document["size_bytes"], document["open_for_writing"]) == (5, True)
    [row] = query(site.settings, "SELECT size FROM inode WHERE kind = 1")
    assert row == (0,)
    [listed] = json.loads(run(site, "ls", "--json"))
    assert listed["size_bytes"] == 5
    Namespace(site.settings).close()
    assert not facts(site, "f")["open_for_writing"]


def test_up_waits_for_a_command(site: Site) -> None:
    held = ExitStack()
    held.enter_context(datadir.locked(site.settings, datadir.COMMAND))
    timer = threading.Timer(1, held.close)
    timer.start()
    with prepared(site.settings):
        timer.join()


@pytest.mark.parametrize("moved", ["top/keep", "top"])
@pytest.mark.parametrize("at", [0, 1], ids=["before", "after"])
def test_what_a_client_moves_out_of_a_tree_stays(site: Site, moved: str, at: int) -> None:
    """A client moves at the moment at which the removal begins to list, or has listed."""
    run(site, "mkdir", "-p", "safe", "top/keep/inside", "top/other")
    make_file(site, "top/keep/inside/model", b"bytes")
    top = facts(site, "top")["ino"]
    with Browser(site.settings) as browser, opened(site.settings) as control:
        entry = browser.entry(ROOT_INO, b"safe")
        assert entry is not None
        move = RpcRequest(Op.RENAME, ROOT_INO, b"top", entry.attr.ino, b"moved")
        if moved == "top/keep":
            move = RpcRequest(Op.RENAME, top, b"keep", entry.attr.ino, b"moved")
        moving = Moving(browser, lambda: control.run([move]), at)
        removal = TreeRemoval(moving, control.run)
        removal.tree(ROOT_INO, b"top", top)
    assert (b"model" in moving.listed) == bool(at)
    kept = "safe/moved/inside" if moved == "top/keep" else "safe/moved/keep/inside"
    assert run(site, "ls", kept) == "model\n"
    assert [why for _path, why in removal.failures] == [errno.ESTALE]


class Moving(Browser):
    """Lets a client act while "inside" is listed (0), or "model" inside it (1)."""

    def __init__(self, browser: Browser, act: Callable[[], object], at: int) -> None:
        self.__dict__.update(browser.__dict__)
        self._act = act
        self._at = (b"inside", b"model")[at]
        self.listed: list[bytes] = []

    def entries(self, parent: int) -> Iterator[NamedInode]:
        entries = list(super().entries(parent))
        self.listed += [entry.name for entry in entries]
        if any(entry.name == self._at for entry in entries):
            self._act()
        return iter(entries)


def test_a_name_that_is_another_inode_by_now_stays(site: Site) -> None:
    make_file(site, "f", b"old")
    old = facts(site, "f")["ino"]
    with opened(site.settings) as control:
        removals = [RpcRequest(Op.REMOVE, ROOT_INO, b"f", ino) for ino in (old + 1, old)]
        assert [control.run([removal])[0].errno for removal in removals] == [errno.ENOENT, 0]


@pytest.mark.parametrize("name", [b"\xff", b"\x1b[2J\n"])
def test_a_path_of_any_bytes_is_shown_so_that_a_terminal_can(site: Site, name: bytes) -> None:
    def ask(command: str, *args: str, status: int = 0) -> str:
        output = run(site, command, *args, status=status)
        assert all(line.isprintable() for line in output.splitlines())
        return output

    path = os.fsdecode(name)
    escaped = printable(name)
    ask("mkdir", path, "d")
    assert escaped in ask("mkdir", path, status=1)
    assert escaped in ask("stat", path)
    assert escaped in ask("ls", path, "d")
    assert text_of(name) in ask("ls", "--json", "-l", "/")
    assert escaped in ask("mv", f"{path}x", "d", status=1)
    assert escaped in ask("mv", path, f"d/{path}", "d", status=2)
    assert escaped in ask("rm", path, status=1)
    assert f"{escaped}: 1 names removed" in ask("rm", "-r", path)
