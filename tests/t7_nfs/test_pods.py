"""What kubelet and csi-driver-nfs do with an export, as docs/tasks/kubernetes.md tells it."""

from __future__ import annotations

import json
from contextlib import ExitStack

from tests.support.client import MOUNT, PYTHON, start_program
from tests.support.gateway import Gateway
from tests.support.vm.client import ClientVm, Command
from tests.support.waiting import until
from tests.t7_nfs.conftest import MakeGateway

CLAIM = "training/llama"
ARCHIVED = "archived-training/llama"
VOLUME = "/mnt/volume"
SUBPATH = "/mnt/subpath"
USER, GROUP, FS_GROUP = 1000, 1000, 2000
AS_POD = (
    *("setpriv", f"--reuid={USER}", f"--regid={GROUP}", f"--groups={FS_GROUP}"),
    "--no-new-privs",
)
SHARD = b"a" * 4096 + b"b" * 4096
SAVE = f"""
import os, sys, time
from pathlib import Path
os.chdir(sys.argv[1])
os.mkdir("step-1")
with open("step-1/rank-0.pt.tmp", "wb", buffering=0) as file:
    file.write({SHARD[:4096]!r})
    Path("/tmp/half").touch()
    while not Path("/tmp/restarted").exists():
        time.sleep(0.1)
    file.write({SHARD[4096:]!r})
    os.fsync(file.fileno())
os.rename("step-1/rank-0.pt.tmp", "step-1/rank-0.pt")
"""
"""The save of a pod. It is half when the gateway is restarted."""


def owned(vm: ClientVm) -> int:
    """Do what kubelet does for ``fsGroup``. Returns how many files and directories it changed."""
    return int(start_program(vm, "kubelet.py", "own", VOLUME, str(FS_GROUP)).wait().stdout)


def stat(vm: ClientVm, path: str) -> str:
    return vm.run(["stat", "-c", "%u:%g %a", path]).stdout.strip()


def bind_subpath(vm: ClientVm) -> None:
    """Make a subPath and mount it as kubelet does: by the descriptor of the directory."""
    vm.run(
        f"mkdir -m 2775 {VOLUME}/run && mkdir -p {SUBPATH} && exec 3<{VOLUME}/run"
        f" && mount --no-canonicalize --bind /proc/self/fd/3 {SUBPATH}"
    )


def start_save(vm: ClientVm) -> Command:
    """Begin to save as the user of a pod. Returns when half of it is written."""
    vm.run("rm -f /tmp/half /tmp/restarted")
    saving = vm.start([*AS_POD, PYTHON, "-", SUBPATH], stdin=SAVE, timeout_seconds=120.0)
    vm.run("while [ ! -e /tmp/half ]; do busybox usleep 50000; done")
    return saving


def until_durable(gateway: Gateway, claim: str) -> None:
    """Wait until the bucket has the checkpoint of a claim, and its manifest."""
    path = f"{claim}/run/step-1"
    gateway.until_said(f" {path}: its manifest is in the bucket", 1)
    until(lambda: gateway.objects() == {f"{path}/rank-0.pt": SHARD}, "the bucket has nothing else")


def test_the_life_of_a_claim(vm: ClientVm, make_gateway: MakeGateway) -> None:
    rule = {"name": "ranks", "path": "{run}/step-{step}", "files": 1}
    gateway = make_gateway(checkpoints={"rule": [rule]})
    # CreateVolume of the driver, on its mount of the export.
    vm.run(f"umask 022; mkdir -p {MOUNT}/{CLAIM}")
    with ExitStack() as ended:
        vm.mount(gateway.port, f"/checkpoints/{CLAIM}", VOLUME)
        ended.callback(vm.umount, VOLUME)
        assert owned(vm) == 1
        assert stat(vm, VOLUME) == f"0:{FS_GROUP} 2775"
        bind_subpath(vm)
        ended.callback(vm.run, ["umount", SUBPATH])
        saving = start_save(vm)
        gateway.kill("ganesha")
        gateway.until_said("ganesha ready", 2)
        vm.run("touch /tmp/restarted")
        assert saving.wait().stderr == ""
        # Handles of the volume and of the subPath are as good as before.
        vm.drop_caches()
        assert vm.run(f"cd {SUBPATH} && cat step-1/rank-0.pt").stdout.encode() == SHARD
        assert stat(vm, f"{SUBPATH}/step-1/rank-0.pt") == f"{USER}:{FS_GROUP} 644"
        assert stat(vm, f"{VOLUME}/run/step-1") == f"{USER}:{FS_GROUP} 2755"
        # The next pod finds the group, so nothing is changed.
        assert owned(vm) == 0
    until_durable(gateway, CLAIM)
    # DeleteVolume with onDelete: archive.
    vm.run(f"cd {MOUNT} && mkdir -p archived-training && mv {CLAIM} {ARCHIVED}")
    until_durable(gateway, ARCHIVED)
    # And with onDelete: delete. With the directory of its run a checkpoint is held no longer.
    vm.run(f"rm -r {MOUNT}/archived-training")
    until(lambda: gateway.objects() == {}, "the bucket has nothing of it")
    assert json.loads(gateway.spillway("trash", "list", "--json").stdout) == {"trash": []}
