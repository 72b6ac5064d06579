"""Commands that change names while the NFS server does not run, or does not answer."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from gateway.cli.main import main
from gateway.common.errors import START, UserError
from gateway.config import datadir
from gateway.rpc.control import opened
from tests.support.clisite import Site, assert_refused, spillway
from tests.support.tools import run_as_root

CHANGES = (
    *(("mkdir", "d"), ("chown", "1", "/"), ("chmod", "777", "/"), ("mv", "a", "b"), ("rm", "a")),
    ("evict", "a"),
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change[0])
def test_a_change_needs_the_server(site: Site, change: tuple[str, ...]) -> None:
    result = spillway(change[0], "--config", site.config, *change[1:])
    assert_refused(result, f"the NFS server does not run: start it: {START}")


@pytest.mark.parametrize(
    ("who", "advice"),
    [(datadir.UP_PROGRAM, "starting or stopping"), (datadir.COMMAND, "when it has ended")],
)
def test_who_has_the_data_directory_is_waited_for(site: Site, who: str, advice: str) -> None:
    with datadir.locked(site.settings, who), pytest.raises(UserError) as refused:  # noqa: SIM117
        with opened(site.settings, wait_seconds=0.3):
            raise AssertionError
    assert advice in str(refused.value)
    assert f"{who} (pid {os.getpid()})" in str(refused.value)
    assert "kill" not in str(refused.value)


def test_a_command_that_waits_leaves_the_lock_to_the_next_up(site: Site) -> None:
    asks = threading.Event()

    def ask() -> None:
        asks.set()
        with pytest.raises(UserError), opened(site.settings, wait_seconds=6):
            raise AssertionError

    with ThreadPoolExecutor() as pool:
        with datadir.locked(site.settings, datadir.UP_PROGRAM):
            waiting = pool.submit(ask)
            asks.wait()
            time.sleep(0.5)
        time.sleep(0.5)
        with datadir.locked(site.settings, datadir.UP_PROGRAM):
            waiting.result()


def test_root_leaves_nothing_in_the_directory_of_another_user(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server, which runs as the owner, could not use a lock of root."""
    data_dir = site.settings.data_dir
    (site.settings.run_dir / "up.lock").unlink(missing_ok=True)
    data_dir.chmod(0o755)
    run_as_root("chown", "-R", "65534", data_dir)
    before = {path: path.stat().st_mtime_ns for path in data_dir.rglob("*")}
    try:
        assert main(["mkdir", "--config", str(site.config), "d"]) == 2
        assert "the NFS server does not run" in capsys.readouterr().err
        assert {path: path.stat().st_mtime_ns for path in data_dir.rglob("*")} == before
    finally:
        run_as_root("chown", "-R", str(os.geteuid()), data_dir)
