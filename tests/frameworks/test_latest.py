"""The links to the newest checkpoints, as a client that asks the server all the time sees them in a
loop of saves and kills."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Self

import pytest

from tests.frameworks.cases import CASES, Case
from tests.frameworks.lab import POLL_SECONDS, Launcher, guest_path, load_on_host, save
from tests.support import nfs4
from tests.support.gateway import Gateway
from tests.support.nfs4 import op, putfh
from tests.support.vm.client import ClientVm
from tests.support.waiting import until

EXPORT = "checkpoints"
FINISHED = 4
SEED = 7
RUN = "loop"
[DCP] = [case for case in CASES if case.save == "save_dcp"]
LOOP = DCP._replace(path=f"{RUN}/step-{{step}}")


class Links:
    """Reads the links of a run in a thread, without a cache. A context manager.

    At each poll, what ``latest-complete`` names is compared with the files of a whole checkpoint.
    When ``latest-durable`` moves, the objects of what it names are copied from the bucket.

    Args:
        sizes: sizes of the files of a whole checkpoint.
        directory: for the copies.
    """

    def __init__(self, gateway: Gateway, sizes: dict[str, int], directory: Path) -> None:
        self._gateway = gateway
        self._sizes = sizes
        self._directory = directory
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll)
        self.polls = 0
        self.complete: list[str] = []
        """What ``latest-complete`` named, one after the other."""
        self.durable: list[str] = []
        self.partial: list[str] = []
        """What was named and was not whole."""
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def copy(self, number: int) -> Path:
        """Return the directory of the copies that were made at a move of ``latest-durable``."""
        return self._directory / f"move-{number}"

    def _poll(self) -> None:
        try:
            with nfs4.Client(self._gateway.port) as client:
                while not self._stop.is_set():
                    self._look(client)
                    self.polls += 1
                    self._stop.wait(POLL_SECONDS)
        except Exception as exc:  # shown by the test
            self.error = exc

    def _look(self, client: nfs4.Client) -> None:
        named = _named(client, "latest-complete")
        if named is not None:
            sizes = _sizes(client, named)
            # The path of the checkpoint is in .metadata, so that it may be longer.
            if any(sizes.get(name, 0) < size for name, size in self._sizes.items()):
                self.partial.append(f"{named}: {sizes}")
            if self.complete[-1:] != [named]:
                self.complete.append(named)
        named = _named(client, "latest-durable")
        if named is not None and self.durable[-1:] != [named]:
            to = self.copy(len(self.durable))
            for key, body in self._gateway.objects().items():
                if key.startswith(f"{named}/"):
                    (to / key).parent.mkdir(parents=True, exist_ok=True)
                    (to / key).write_bytes(body)
            self.durable.append(named)


def _named(client: nfs4.Client, link: str) -> str | None:
    """Return the path below the export that a link of the run leads to, or None."""
    try:
        handle = client.handle(EXPORT, ".spillway", "runs", RUN, link)
        reply = client.call(putfh(handle), op(nfs4.READLINK))
    except nfs4.Status as exc:
        # The link may have been replaced since.
        assert exc.number in (nfs4.NOENT, nfs4.STALE), exc
        return None
    reply.unpack("IIII")
    return reply.opaque().decode().removeprefix("../" * 3)


def _sizes(client: nfs4.Client, path: str) -> dict[str, int]:
    directory = client.handle(EXPORT, *path.split("/"))
    return {name: client.lookup(directory, name).size for name in client.names(directory)}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("case", [LOOP], ids=lambda case: case.save)
def test_the_links_name_what_is_whole(
    case: Case, vm: ClientVm, launchers: dict[str, Launcher], gateway: Gateway, tmp_path: Path
) -> None:
    launcher = launchers[case.launcher]
    vm.run(["mkdir", guest_path(RUN)])
    first = save(launcher, case, 1)
    assert first.status == 0, first.log
    digests = {case.at(1): first.result}
    chosen = random.Random(SEED)
    kills = 0
    with Links(gateway, first.files, tmp_path) as links:
        step = 2
        while len(digests) < FINISHED:
            moment = chosen.choice([*case.moments, None, None, None])
            outcome = save(launcher, case, step, moment)
            kills += outcome.status < 0
            if outcome.status == 0:
                digests[case.at(step)] = outcome.result
                step += 1
            elif ".metadata" in outcome.files:
                step += 1  # the kill came after the end
        last = case.at(step - 1)

        def named() -> bool:
            return bool(links.error) or (last in links.complete and last in links.durable)

        until(named, f"{last} to be the latest", 120.0)
    assert links.error is None
    print(f"{links.polls} polls, {kills} kills: {links.complete}, {links.durable}")
    assert kills
    assert links.partial == []
    for number, path in enumerate(links.durable):
        loaded = load_on_host(case.load, links.copy(number) / path)
        assert path not in digests or loaded == digests[path]
