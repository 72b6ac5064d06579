"""After kill -9 of either daemon, or without a bucket, nothing that was answered is lost."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial

import pytest

from tests.support.client import MOUNT, read_back, save, saved, start_save
from tests.support.gateway import BUCKET, Gateway
from tests.support.s3proxy import Act
from tests.support.t7.save import below, digests
from tests.support.vm.client import ClientVm
from tests.support.waiting import until
from tests.t7_nfs.conftest import MIB, MakeGateway


def final_names(gateway: Gateway, least: int) -> bool:
    """Return whether the database has at least this many shards with their final name."""
    url = f"file:{gateway.data_dir}/namespace.db?mode=ro"
    with closing(sqlite3.connect(url, uri=True)) as connection:
        names: list[bytes] = [row[0] for row in connection.execute("SELECT name FROM dirent")]
    return sum(name.endswith(b".pt") for name in names) >= least


def test_a_save_survives_kill_9_of_the_nfs_server(vm: ClientVm, make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    running = start_save(vm, "step_5", ranks=4, mib=4, shards=6)
    for kills in (1, 2):
        # Some shards have their final name, others are being written.
        until(partial(final_names, gateway, 5 * kills), "renamed shards", 120.0)
        assert not running.done
        gateway.kill("ganesha")
        gateway.until_said("ganesha ready", kills + 1)
    files, _seconds = saved(running)
    assert len(files) == 24
    assert read_back(vm, "step_5") == files
    gateway.until_drained(120.0)
    assert digests(gateway) == below("step_5", files)


def test_a_multipart_upload_survives_kill_9_of_the_drain(
    vm: ClientVm, make_gateway: MakeGateway
) -> None:
    gateway = make_gateway(drain={"part_bytes": 5 * MIB})
    held = gateway.proxy.inject(lambda request: request.operation == "PART", Act.HOLD)
    files, _seconds = save(vm, "step_6", ranks=1, mib=32)
    held.wait()
    gateway.kill("drain")
    gateway.until_said("drain restarted", 1)
    held.discard()
    gateway.until_drained()
    assert digests(gateway) == below("step_6", files)
    assert "Uploads" not in gateway.server.client().list_multipart_uploads(Bucket=BUCKET)


@pytest.mark.alone
def test_saves_go_on_without_a_bucket(vm: ClientVm, make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    _files, with_bucket_seconds = save(vm, "step_1", ranks=8, mib=4, seed=1)
    gateway.until_drained()
    gateway.server.stop()
    files, seconds = save(vm, "step_2", ranks=8, mib=4, seed=2)
    # A wait for the bucket would take 30 s or more.
    assert seconds < 3 * with_bucket_seconds + 2

    status = gateway.status()
    assert not status["bucket"]["reachable"]
    assert not status["healthy"]
    assert status["dirty"]["files"] == 8
    assert status["dirty"]["bytes"] == 8 * 4 * MIB
    text = gateway.spillway("status", check=False)
    assert text.returncode == 1
    assert "NOT USABLE" in text.stdout

    gateway.server.start()
    gateway.until_drained()
    assert {k: v for k, v in digests(gateway).items() if k.startswith("step_2/")} == below(
        "step_2", files
    )
    assert gateway.status()["healthy"]


def test_a_deleted_file_stays_deleted_over_kills(vm: ClientVm, make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    save(vm, "step_1", ranks=2, mib=1)
    gateway.until_drained()
    gateway.server.stop()
    vm.run(["rm", "-r", str(MOUNT / "step_1")])
    for name in ("ganesha", "drain"):
        gateway.kill(name)
    gateway.until_said("ganesha ready", 2)
    gateway.server.start()
    gateway.until_drained()
    assert gateway.objects() == {}
    assert vm.run(["ls", str(MOUNT)]).stdout == ""
