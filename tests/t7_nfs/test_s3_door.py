"""The S3 server of docs/tasks/s3-door.md on a real mount, of which t11_package has a directory."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.client import MOUNT
from tests.support.gateway import Gateway
from tests.support.s3server import ACCESS_KEY, SECRET_KEY
from tests.support.t11.door import command_of_the_unit
from tests.support.vm.client import ClientVm, Command
from tests.support.waiting import until
from tests.t7_nfs.conftest import MIB, MakeGateway

USER = 2100
HERE = {
    "/usr/bin/rclone": f"/run/host{Path(sys.executable).with_name('rclone').resolve()}",
    ":8443": "127.0.0.1:8080",
}
BUCKET = "http://127.0.0.1:8080/team"
PUT = (
    f"curl -fsS -T /tmp/body -u '{ACCESS_KEY}:{SECRET_KEY}' --aws-sigv4 aws:amz:us-east-1:s3"
    " -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD'"
)


def start_door(vm: ClientVm) -> Command:
    """Start the command of the unit as a user, without TLS."""
    words = command_of_the_unit()
    certificate = words.index("--cert")
    del words[certificate : certificate + 4]
    keys = f'RCLONE_AUTH_KEY="{ACCESS_KEY},{SECRET_KEY}"'
    user = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")
    return vm.start(
        [*user, "env", "HOME=/tmp", keys, *(HERE.get(word, word) for word in words)],
        timeout_seconds=240.0,
    )


def held(gateway: Gateway) -> list[str]:
    """Return the paths of the files that wait because of their names."""
    listed = json.loads(gateway.spillway("queue", "list", "--json").stdout)
    return [file["path"] for file in listed["files"] if file["state"] == "held"]


@pytest.mark.skipif("SPILLWAY_S3_DOOR" not in os.environ, reason="make slow runs it")
def test_what_is_put_is_drained_when_it_is_whole(vm: ClientVm, make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    gateway.spillway("mkdir", "--owner", f"{USER}:{USER}", "-m", "2770", "/checkpoints/team")
    door = start_door(vm)
    vm.run(f"head -c {6 * MIB} /dev/zero >/tmp/body")
    vm.run(f"{PUT} --retry 60 --retry-delay 1 --retry-connrefused {BUCKET}/run/model.bin")
    gateway.until_drained()
    whole = {"team/run/model.bin": bytes(6 * MIB)}
    assert gateway.objects() == whole
    half = vm.start(f"{PUT} --limit-rate 1M {BUCKET}/run/next.bin")
    vm.run(f"until ls {MOUNT}/team/run/.rclone_temp_put_*; do busybox usleep 100000; done")
    vm.run("kill -9 $(busybox pidof rclone)")
    assert door.wait(check=False).exit_status != 0
    [path] = until(lambda: held(gateway), "the half file is held")
    assert "/team/run/.rclone_temp_put_" in path
    assert gateway.objects() == whole
    assert [request for request in gateway.proxy.requests if ".rclone" in (request.key or "")] == []
    assert half.wait(check=False).exit_status != 0
