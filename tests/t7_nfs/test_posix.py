"""The behaviour that POSIX programs on a client rely on."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from gateway.common.types import ROOT_CRED, SetAttr
from gateway.db.writer import Operation
from gateway.namespace.names import create
from tests.support.client import MOUNT, PYTHON, start_program
from tests.support.namespace import Namespace
from tests.support.vm.client import ClientVm
from tests.t7_nfs.conftest import OFFERED, MakeGateway

FILL_BATCH = 256


@pytest.mark.parametrize("version", OFFERED)
def test_what_programs_expect(version: str, vm: ClientVm, make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    if version != "4.1":
        vm.umount()
        vm.mount(gateway.port, version=version)
    done = start_program(vm, "posix.py", MOUNT).wait()
    results = json.loads(done.stdout)
    assert len(results) > 15
    assert {name: text for name, text in results.items() if text != "ok"} == {}, done.stderr


LIST = """
import os, sys, threading
os.chdir("%s/large")
stop = threading.Event()
def churn():
    number = 0
    while not stop.is_set():
        open(f"new-{number}", "w").close()
        os.unlink(f"keep-{number * 2 + 1:06d}-drop")
        number += 1
thread = threading.Thread(target=churn)
thread.start()
listed = os.listdir(".")
stop.set()
thread.join()
kept = [name for name in listed if name.endswith("-stay")]
print(len(listed) - len(set(listed)), len(kept), len(set(kept)))
"""


def test_a_large_directory_is_listed_whole_while_it_changes(
    vm: ClientVm, make_gateway: MakeGateway
) -> None:
    """A listing of 100,000 entries has no duplicates and misses no name that stays."""
    gateway = make_gateway(prepare=fill)
    done = vm.run([PYTHON, "-"], stdin=LIST % MOUNT, timeout_seconds=240.0)
    assert done.stdout.split() == ["0", "50000", "50000"]
    assert gateway.said("died") == 0
    resident_mib = gateway.resident_mib("ganesha")
    print(f"ganesha with the namespace inside: {resident_mib:.0f} MiB resident")
    assert resident_mib < 512


def fill(namespace: Namespace) -> None:
    parent = namespace.mkdir(ROOT_CRED, 2, b"large", SetAttr(mode=0o777)).ino
    names = (b"keep-%06d-%s" % (n, b"drop" if n % 2 else b"stay") for n in range(100_000))
    while batch := list(islice(names, FILL_BATCH)):
        operations = [
            Operation(
                create,
                ROOT_CRED,
                parent,
                name,
                SetAttr(mode=0o666),
                generation=namespace.boot.generation,
                for_writing=False,
            )
            for name in batch
        ]
        namespace.run_together(operations)
        for operation in operations:
            operation.outcome()
