"""A checkpoint saved through a real NFSv4 mount reaches the bucket whole, at its final key."""

from __future__ import annotations

import json

from tests.support.client import MOUNT, read_back, save
from tests.support.gateway import Gateway
from tests.support.t7.save import below, digests
from tests.support.vm.client import ClientVm
from tests.support.waiting import until
from tests.t7_nfs.conftest import MakeGateway


def requested(gateway: Gateway) -> set[str]:
    """Return the keys of all requests that write, copy or delete."""
    return {
        request.key for request in gateway.proxy.requests if request.method != "GET" and request.key
    }


def test_a_saved_checkpoint_reaches_the_bucket(vm: ClientVm, make_gateway: MakeGateway) -> None:
    rule = {"name": "ranks", "path": "{run}/step_{step}", "files": 8}
    gateway = make_gateway(checkpoints={"rule": [rule]})
    files, _seconds = save(vm, "run/step_1000", ranks=8, mib=16)
    assert len(files) == 8
    assert read_back(vm, "run/step_1000") == files
    gateway.until_drained()
    assert digests(gateway) == below("run/step_1000", files)
    # The files were written under .tmp and renamed, and no request had a temporary name.
    assert {key for key in requested(gateway) if key.endswith(".tmp")} == set()
    assert gateway.proxy.operations("COPY", "PART COPY") == []
    until(lambda: states(gateway) == {"/checkpoints/run/step_1000": "durable"}, "it is durable")
    # The job reads it through a receipt, whose link leads to the right place on its mount.
    runs = f"{MOUNT}/.spillway/runs/run"
    found = f"test $(ls {runs}/latest-durable/ | wc -l) = 8"
    # A client that looked too early remembers for up to 30 s that there is no such name.
    until(lambda: vm.run(["sh", "-c", found], check=False).exit_status == 0, "the receipt", 90.0)
    assert ".spillway" not in vm.run(["ls", "-a", str(MOUNT)]).stdout
    refused = vm.run(["sh", "-c", f"touch {runs}/x 2>&1"], check=False)
    assert "Read-only file system" in refused.stdout


def states(gateway: Gateway) -> dict[str, str]:
    """Return the states of the checkpoints by path."""
    checkpoints = json.loads(gateway.spillway("checkpoint", "list", "--json").stdout)["checkpoints"]
    return {checkpoint["path"]: checkpoint["state"] for checkpoint in checkpoints}


def test_a_directory_renamed_before_the_drain_costs_no_copy(
    vm: ClientVm, make_gateway: MakeGateway
) -> None:
    gateway = make_gateway()
    until(lambda: gateway.status()["bucket"]["checksum"]["kind"], "the store was asked")
    gateway.proxy.forget()
    files, _seconds = save(vm, "tmp-checkpoint-7", ranks=4, mib=2, shards=3)
    vm.run(["mv", str(MOUNT / "tmp-checkpoint-7"), str(MOUNT / "checkpoint-7")])
    gateway.until_drained()
    assert digests(gateway) == below("checkpoint-7", files)
    assert gateway.proxy.operations("COPY", "PART COPY", "DELETE") == []
    assert {key for key in requested(gateway) if key.startswith("tmp-")} == set()


def test_unlink_deletes_and_rename_moves_what_was_drained(
    vm: ClientVm, make_gateway: MakeGateway
) -> None:
    gateway = make_gateway()
    files, _seconds = save(vm, "step_1", ranks=4, mib=1)
    gateway.until_drained()
    vm.run(
        f"cd {MOUNT} && rm step_1/rank_00_0.pt && mv step_1/rank_01_0.pt step_1/best.pt"
        " && mv step_1 step_one"
    )
    files["best.pt"] = files.pop("rank_01_0.pt")
    del files["rank_00_0.pt"]
    gateway.until_drained()
    assert digests(gateway) == below("step_one", files)
    assert read_back(vm, "step_one") == files
    vm.run(["rm", "-r", str(MOUNT / "step_one")])
    gateway.until_drained()
    assert gateway.objects() == {}


def test_a_file_written_again_replaces_its_object(vm: ClientVm, make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    for text in ("one", "and two", ""):
        vm.run(f"printf '{text}' > {MOUNT}/latest")
        gateway.until_drained()
        assert gateway.objects() == {"latest": text.encode()}
    vm.run(f"printf 'tail' >> {MOUNT}/latest")
    gateway.until_drained()
    assert gateway.objects() == {"latest": b"tail"}
