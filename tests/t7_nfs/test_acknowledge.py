"""With ``acknowledge = "bucket"`` a CLOSE is answered only when the bucket has the file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support import nfs4
from tests.support.client import MOUNT
from tests.support.gateway import Gateway, Values, running
from tests.support.s3proxy import Act, Fault
from tests.support.vm.client import ClientVm
from tests.support.volumes import query
from tests.support.waiting import until
from tests.t7_nfs.conftest import MakeGateway

WAIT_SECONDS = 15.0
"""Uploads that are released must arrive within it, also on a busy machine."""
BUSY_SECONDS = 2.0
"""How long others are served while CLOSEs wait."""
RULES = [
    {"path": "durable/log.txt", "acknowledge": "local"},
    {"path": "durable"},
    {"path": "{run}/step-{step}", "every_steps": 10},
]
PENDING = 64
"""The CLOSEs that wait at the same time."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Run a gateway whose files settle for an hour, except those that clients wait for."""
    values: Values = {
        "acknowledge": {"rule": RULES, "wait_seconds": WAIT_SECONDS},
        "drain": {"settle_seconds": 3600.0},
    }
    with running(tmp_path_factory.mktemp("acknowledge"), values) as made:
        for directory in ("durable", "run", "run/step-15", "run/step-20", "other"):
            made.spillway("mkdir", directory)
        yield made


@pytest.fixture
def client(gateway: Gateway) -> Iterator[nfs4.Client]:
    with nfs4.Client(gateway.port) as made:
        yield made


@contextmanager
def held(gateway: Gateway, part: str = "") -> Iterator[Fault]:
    """Hold the uploads to keys with a part."""
    fault = gateway.proxy.inject(
        lambda r: r.method == "PUT" and part in r.key, Act.HOLD, float("inf")
    )
    try:
        yield fault
    finally:
        fault.release()


def answer(file: nfs4.File, *before: bytes) -> int:
    """Ask once to close a file. Returns the status."""
    try:
        file.close(*before)
    except nfs4.Status as exc:
        return exc.number
    return nfs4.OK


def at(client: nfs4.Client, path: str) -> tuple[bytes, str]:
    """Return the handle of a path's directory, and the last name."""
    *directories, name = path.split("/")
    return client.handle("checkpoints", *directories), name


def test_a_close_is_answered_when_the_bucket_has_the_file(
    gateway: Gateway, client: nfs4.Client
) -> None:
    with client.opened(*at(client, "durable/one")) as file, held(gateway) as fault:
        file.write(b"bytes")
        assert answer(file) == nfs4.DELAY
        fault.wait()  # the upload has begun: the file counts as closed
        assert answer(file) == nfs4.DELAY
        assert "durable/one" not in gateway.objects()
        fault.release()
        file.until_closed()
        assert gateway.objects()["durable/one"] == b"bytes"


@pytest.mark.parametrize(
    ("path", "waits"),
    [
        ("other/file", False),
        ("durable/file.tmp", False),
        ("durable/log.txt", False),
        ("run/step-15/file", False),
        ("run/step-20/file", True),
    ],
)
def test_only_files_of_a_rule_wait(
    gateway: Gateway, client: nfs4.Client, path: str, waits: bool
) -> None:
    with client.opened(*at(client, path)) as file, held(gateway):
        file.write(b"bytes")
        assert answer(file) == (nfs4.DELAY if waits else nfs4.OK)
        if waits:
            gateway.spillway("rm", path)
            file.until_closed()  # nothing is left to wait for
            assert path not in gateway.objects()


def test_an_open_for_reading_never_waits(gateway: Gateway, client: nfs4.Client) -> None:
    where = at(client, "durable/read")
    with client.opened(*where) as file, held(gateway):
        file.write(b"bytes")
        with client.opened(*where, reads=True) as reader:
            assert answer(file) == nfs4.DELAY
            assert answer(reader) == nfs4.OK


def test_a_close_that_waits_in_vain_is_an_error(gateway: Gateway, client: nfs4.Client) -> None:
    with client.opened(*at(client, "durable/late")) as file, held(gateway) as fault:
        file.write(b"bytes")
        began = time.monotonic()
        while (status := answer(file)) == nfs4.DELAY:
            time.sleep(nfs4.AGAIN_SECONDS)
        assert status == nfs4.IO
        assert time.monotonic() - began >= WAIT_SECONDS
        assert answer(file) == nfs4.IO  # at once: it has waited
        until(lambda: ganesha_said(gateway, "its CLOSE is answered with an error"), "the log")
        assert "durable/late" not in gateway.objects()
        fault.release()
        until(lambda: answer(file) == nfs4.OK, "the bucket")
        assert gateway.objects()["durable/late"] == b"bytes"


def test_a_close_of_a_damaged_file_is_an_error_at_once(
    gateway: Gateway, client: nfs4.Client
) -> None:
    settings = gateway.settings
    with client.opened(*at(client, "durable/damaged")) as file, held(gateway):
        file.write(b"bytes")
        ino = client.getattr(file.handle).fileid
        query(settings, "INSERT INTO damage VALUES (:i, 1, 'bytes are lost', 1)", i=ino)
        assert answer(file) == nfs4.IO
        gateway.spillway("rm", "durable/damaged")
        file.until_closed()


def ganesha_said(gateway: Gateway, text: str) -> bool:
    logs = (gateway.data_dir / "log").glob("ganesha*")
    return any(text in log.read_text() for log in logs)


def test_another_version_is_never_taken_for_what_was_closed(
    gateway: Gateway, client: nfs4.Client
) -> None:
    with client.opened(*at(client, "durable/again")) as file, held(gateway) as fault:
        file.write(b"first")
        assert answer(file) == nfs4.DELAY
        fault.wait()
        file.write(b"again")
        assert answer(file) == nfs4.DELAY
        fault.release()
        file.until_closed()
        assert gateway.objects()["durable/again"] == b"again"


def test_a_client_that_opens_again_goes_on_with_the_file(
    gateway: Gateway, client: nfs4.Client
) -> None:
    settings = gateway.settings
    with client.opened(*at(client, "durable/reopened")) as file, held(gateway):
        file.write(b"first")
        assert answer(file) == nfs4.DELAY
        file.open()
        file.write(b"again")
        ino = client.getattr(file.handle).fileid
        for _ in range(20):  # it is sealed at once if it has no writer
            [(is_open,)] = query(settings, "SELECT write_open FROM inode WHERE ino = :i", i=ino)
            assert is_open
            time.sleep(0.02)
    assert gateway.objects()["durable/reopened"] == b"again"


def test_a_close_is_refused_if_its_request_changes_the_file(
    gateway: Gateway, client: nfs4.Client
) -> None:
    for path, status in (("other/mixed", nfs4.OK), ("durable/mixed", nfs4.NOTSUPP)):
        with client.opened(*at(client, path)) as file:
            assert answer(file, file.write_operation(b"late")) == status
    with client.opened(*at(client, "durable/current")) as file:
        assert answer(file, file.close_operation(bytes(16))) == nfs4.NOTSUPP


def test_a_request_with_two_closes_waits_for_both(gateway: Gateway, client: nfs4.Client) -> None:
    where = at(client, "durable/both")
    other = client.open(*where)
    with client.opened(*where) as file:
        file.write(b"bytes")
        # The first CLOSE waits until the second one has ended its writing.
        until(lambda: answer(file, other.close_operation()) == nfs4.OK, "the bucket")
        assert gateway.objects()["durable/both"] == b"bytes"


def test_a_close_waits_for_other_writers(gateway: Gateway, client: nfs4.Client) -> None:
    where = at(client, "durable/shared")
    with client.opened(*where) as other, client.opened(*where) as file:
        file.write(b"file")
        other.write(b"other", offset=4)
        began = time.monotonic()
        while time.monotonic() - began < 1.0:
            assert answer(file) == nfs4.DELAY
        other.until_closed()
        assert gateway.objects()["durable/shared"] == b"fileother"
        file.until_closed()


def threads(gateway: Gateway) -> int:
    return len(list(Path(f"/proc/{gateway.pid('ganesha')}/task").iterdir()))


@pytest.mark.alone
def test_many_that_wait_hold_no_thread(gateway: Gateway, client: nfs4.Client) -> None:
    other = at(client, "other/served")
    before = threads(gateway)
    with ExitStack() as stack, held(gateway):
        files = []
        for number in range(PENDING):
            file = stack.enter_context(client.opened(*at(client, f"durable/{number}")))
            file.write(b"bytes")
            files.append(file)
        asked, longest = 0, 0.0
        began = time.monotonic()
        with nfs4.Client(gateway.port) as served:
            while time.monotonic() - began < BUSY_SECONDS:
                assert {answer(file) for file in files} == {nfs4.DELAY}
                started = time.monotonic()
                with served.opened(*other) as file:
                    file.write(b"served")
                longest = max(longest, time.monotonic() - started)
                asked += 1
        print(f"{asked} rounds, longest {longest:.3f} s, threads {before} then {threads(gateway)}")
        assert longest < 1.0
        assert threads(gateway) < before + PENDING / 2
    assert all(f"durable/{number}" in gateway.objects() for number in range(PENDING))


def test_a_close_waits_also_after_a_restart(gateway: Gateway) -> None:
    with held(gateway) as fault:
        with nfs4.Client(gateway.port) as client:
            where = at(client, "durable/restarted")
            file = client.open(*where)
            file.write(b"bytes")
            assert answer(file) == nfs4.DELAY
            fault.wait()
            ready = gateway.said("ganesha ready")
            gateway.kill("ganesha")
        gateway.until_said("ganesha ready", ready + 1)
        with nfs4.Client(gateway.port) as client, client.opened(*where) as file:
            assert answer(file) == nfs4.DELAY
            assert "durable/restarted" not in gateway.objects()
            fault.release()
            file.until_closed()
            assert gateway.objects()["durable/restarted"] == b"bytes"


def test_close_of_a_linux_client_returns_when_the_bucket_has_the_file(
    vm: ClientVm, make_gateway: MakeGateway
) -> None:
    gateway = make_gateway(acknowledge={"rule": [{"path": "durable"}]})
    vm.run(["mkdir", str(MOUNT / "durable")])
    with held(gateway) as fault:
        # Linux sends the CLOSE by itself, after close(), if the end of the last WRITE still has the
        # file open. After the pause it has not.
        save = f"exec 3> {MOUNT}/durable/file; printf bytes >&3; sync; sleep 1; exec 3>&-"
        writer = vm.start(save, timeout_seconds=120.0)
        fault.wait()
        # Others are served, and the close() of another path returns at once.
        vm.run(f"printf other > {MOUNT}/other && cat {MOUNT}/other && ls {MOUNT}/durable")
        before = closes(vm)
        until(lambda: closes(vm) > before + 10, "the repetitions of the CLOSE")
        assert not writer.done
        assert gateway.objects() == {}
        fault.release()
        writer.wait()
        assert gateway.objects()["durable/file"] == b"bytes"


def closes(vm: ClientVm) -> int:
    """Return how many CLOSEs the client has sent."""
    shown = vm.run("grep -m 1 'CLOSE:' /proc/self/mountstats").stdout
    return int(shown.split()[1])
