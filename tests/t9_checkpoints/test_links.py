"""The links to the newest checkpoints, as a client that polls the server sees them in a loop of
saves, also of steps that are there, while saves and each process of the gateway are killed.

Longer: ``SPILLWAY_LINKS_SECONDS=600``.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support import nfs4
from tests.support.gateway import Gateway, running
from tests.support.nfs4 import op, putfh
from tests.support.waiting import until

SECONDS = float(os.environ.get("SPILLWAY_LINKS_SECONDS", "12"))
POLL_SECONDS = 0.01
REST_SECONDS = 0.1
"""The rest after a save."""
RUN = "loop"
VICTIMS = ("drain", "checkpoints", "ganesha", "checkpoints", "drain", "cache")
FILES = {"__0_0.distcp": 300_000, "__1_0.distcp": 5, ".metadata": 20}
"""The sizes of the files of a checkpoint. A save writes them in this order."""
_PASSING = (nfs4.NOENT, nfs4.STALE)
"""The link may have been replaced since, or the server be a new one."""


def content(step: int, name: str) -> bytes:
    return f"{step:<8d}{name:<12}".encode().ljust(FILES[name], b".")[: FILES[name]]


class Polling:
    """Reads both links in a thread, without a cache, and compares what they name: the complete one
    with what clients read, the durable one with what the bucket has at that moment."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.polls = 0
        self.complete: list[int] = []
        """The steps that ``latest-complete`` named, one after the other."""
        self.durable: list[int] = []
        self.wrong: list[str] = []
        self.error: Exception | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                with suppress(OSError, EOFError), nfs4.Client(self._gateway.port) as client:
                    while not self._stop.wait(POLL_SECONDS):
                        self._look(client)
                        self.polls += 1
                self._stop.wait(POLL_SECONDS)
        except Exception as exc:  # shown by the test
            self.error = exc

    def _look(self, client: nfs4.Client) -> None:
        link = _link(client, "latest-complete")
        if link is not None:
            sizes = _sizes(client, link.step)
            if sizes not in (None, FILES) and _link(client, "latest-complete") == link:
                self.wrong.append(f"latest-complete names step {link.step}: {sizes}")
            if self.complete[-1:] != [link.step]:
                self.complete.append(link.step)
        link = _link(client, "latest-durable")
        step = 0 if link is None else link.step
        if step and self.durable[-1:] != [step]:
            for name in FILES:
                path = self._gateway.stored(f"{RUN}/step-{step}/{name}")
                is_stored = path.exists() and path.read_bytes() == content(step, name)
                # rclone takes a file away for a moment while its object is replaced.
                if not is_stored and _link(client, "latest-durable") == link:
                    self.wrong.append(f"latest-durable names step {step}: {name} is not stored")
            self.durable.append(step)


class Link(NamedTuple):
    """A link that is there. Another one with the same step has another handle."""

    step: int
    handle: bytes


def _link(client: nfs4.Client, name: str) -> Link | None:
    try:
        handle = client.handle("checkpoints", ".spillway", "runs", RUN, name)
        reply = client.call(putfh(handle), op(nfs4.READLINK))
    except nfs4.Status as exc:
        assert exc.number in _PASSING, exc
        return None
    reply.unpack("IIII")
    return Link(int(reply.opaque().rpartition(b"-")[2]), handle)


def _named(client: nfs4.Client, name: str) -> int | None:
    """Return the step that a link of the run leads to, or None."""
    link = _link(client, name)
    return None if link is None else link.step


def _sizes(client: nfs4.Client, step: int) -> dict[str, int] | None:
    """Return the sizes of the files of a step, as the server tells them. None: the server is
    another one since."""
    try:
        directory = client.handle("checkpoints", RUN, f"step-{step}")
        return {name: client.lookup(directory, name).size for name in client.names(directory)}
    except nfs4.Status as exc:
        if exc.number == nfs4.STALE:
            return None
        raise


def _save(client: nfs4.Client, step: int, is_killed: Callable[[], bool]) -> bool:
    """Save a checkpoint. Returns False if it is killed in the middle."""
    at = client.handle("checkpoints")
    for name in (RUN, f"step-{step}"):
        with suppress(nfs4.Status):  # it is there
            client.mkdir(at, name, 0o755)
        at = client.handle("checkpoints", *(RUN, f"step-{step}")[: 1 + (name != RUN)])
    for name in FILES:
        if is_killed():
            return False
        with client.opened(at, name, empties=True) as file:
            data = content(step, name)
            middle = len(data) // 2
            file.write(data[:middle])
            file.write(data[middle:], middle)
    return True


def _save_whole(gateway: Gateway, step: int) -> int:
    """Save this checkpoint, or a later one if the server goes away meanwhile. Returns its step."""
    while True:
        try:
            with nfs4.Client(gateway.port) as client:
                _save(client, step, lambda: False)
        except (OSError, EOFError, nfs4.Status):
            time.sleep(0.2)
            step += 1
            continue
        return step


def test_both_links_leave_a_step_before_it_is_saved_again(tmp_path: Path) -> None:
    """Nothing renames anything: only the OPEN says that a file is written again."""
    values: dict[str, dict[str, Any]] = {
        "drain": {"settle_seconds": 0.1, "poll_seconds": 0.1, "retry_max_seconds": 0.5},
    }
    with running(tmp_path, values) as gateway, nfs4.Client(gateway.port) as client:

        def both_name(step: int) -> bool:
            links = ("latest-complete", "latest-durable")
            return all(_named(client, link) == step for link in links)

        for step in (1, 2):
            assert _save(client, step, lambda: False)
            until(partial(both_name, step), f"both links name step {step}")
        directory = client.handle("checkpoints", RUN, "step-2")
        with client.opened(directory, "__0_0.distcp", empties=True) as file:
            assert _named(client, "latest-complete") != 2
            assert _named(client, "latest-durable") != 2
            file.write(b"newer")
            until(partial(both_name, 1), "both links name step 1")
        assert _save(client, 2, lambda: False)
        until(partial(both_name, 2), "both links name step 2 again")


@pytest.mark.timeout(240 + 2 * SECONDS)
def test_the_links_name_what_is_whole_whatever_is_killed(tmp_path: Path) -> None:
    values: dict[str, dict[str, Any]] = {
        "nfs": {"lease_seconds": 5, "grace_seconds": 5},
        "drain": {"settle_seconds": 0.1, "poll_seconds": 0.1, "retry_max_seconds": 0.5},
    }
    chosen = random.Random(11)
    with running(tmp_path, values) as gateway:
        polling = Polling(gateway)
        step, last, killed_saves, again = 0, 0, 0, 0
        until_seconds = time.monotonic() + SECONDS
        kill_at = time.monotonic() + 1.0
        kills: list[str] = []
        with polling.running():

            def is_enough() -> bool:
                seen = min(len(kills), len(polling.complete), len(polling.durable))
                return seen >= 3 and killed_saves > 0 and again > 0

            # A machine with much else to do gets more time.
            while time.monotonic() < until_seconds + (0.0 if is_enough() else 60.0):
                victim = VICTIMS[len(kills) % len(VICTIMS)]
                # A process may need longer for its start than the time between kills.
                is_on = time.monotonic() < until_seconds or len(kills) < len(VICTIMS)
                # One that died often without serving is started later.
                if is_on and time.monotonic() >= kill_at and gateway.pid(victim) is not None:
                    kills.append(victim)
                    gateway.kill(victim)
                    kill_at = time.monotonic() + SECONDS / len(VICTIMS)
                is_again = step > 0 and chosen.random() < 0.4
                step += 0 if is_again else 1
                again += is_again and step == last
                try:
                    with nfs4.Client(gateway.port) as client:
                        if _save(client, step, lambda: chosen.random() < 0.1):
                            last = step
                        else:
                            killed_saves += 1
                    time.sleep(REST_SECONDS)
                except (OSError, EOFError, nfs4.Status):
                    time.sleep(0.2)  # the server is away
            last = _save_whole(gateway, step + 1)

            def is_named() -> bool:
                return bool(polling.error) or (
                    polling.complete[-1:] == polling.durable[-1:] == [last]
                )

            until(is_named, f"both links to name step {last}", 90.0)
        print(
            f"{polling.polls} polls, {last} steps, {again} of them saved again, {killed_saves}"
            f" saves killed, {kills}:"
            f" complete {polling.complete}, durable {polling.durable}"
        )
    assert polling.error is None
    assert polling.wrong == []
    assert killed_saves
    assert again
    assert {"drain", "checkpoints", "ganesha"} <= set(kills)
    assert min(len(polling.complete), len(polling.durable)) > 1
