"""A checkpoint goes into the trash and comes back, through a whole gateway."""

from __future__ import annotations

import errno
import json
import os
from contextlib import closing, suppress
from typing import Any

import pytest

from gateway.common.errors import TrashRefused
from gateway.common.types import GATEWAY_CRED
from gateway.db.engine import Database
from gateway.db.models import ROOT_INO, TRASH_INO
from gateway.lifecycle.trash.trash import Trash
from gateway.rpc.control import opened
from gateway.rpc.frames import Op, RpcRequest
from tests.support import nfs4
from tests.support.gateway import Gateway
from tests.support.volumes import query
from tests.support.waiting import until

MIB = 1024 * 1024
PATH = "run/step-1"


def write(gateway: Gateway, files: dict[str, bytes]) -> None:
    gateway.spillway("mkdir", "-p", PATH)
    with nfs4.Client(gateway.port) as client:
        at = client.handle("checkpoints", *PATH.split("/"))
        for name, data in files.items():
            with client.opened(at, name, empties=True) as file:
                for offset in range(0, len(data), MIB):
                    file.write(data[offset : offset + MIB], offset)


def put(gateway: Gateway) -> str:
    """Put the checkpoint into the trash, when the catalogue has it as complete."""
    settings = gateway.settings
    asked = "SELECT ino, evidence FROM checkpoint WHERE path = :path AND state <> 'writing'"

    def trashed() -> str:
        for ino, evidence in query(settings, asked, path=PATH.encode()):
            with suppress(TrashRefused):  # the catalogue has not seen the last change yet
                return trash.put(ino, PATH.encode(), evidence, "a person", "a test")
        return ""

    with closing(Database(settings.database_url)) as database:
        trash = Trash(settings, database)
        return until(trashed, "a complete checkpoint that may be put into the trash")


def put_with(gateway: Gateway, fingerprint: int) -> int:
    """Ask over the control socket for the rename of a put. Returns its errno.

    Args:
        fingerprint: fingerprint of the request.
    """
    settings = gateway.settings
    with opened(settings) as control:
        [run] = control.run([RpcRequest(Op.LOOKUP, ROOT_INO, b"run")])
        assert run.attr is not None
        asked = RpcRequest(Op.RENAME, run.attr.ino, b"step-1", TRASH_INO, b"t1", fingerprint)
        return control.run([asked._replace(cred=GATEWAY_CRED)])[0].errno


def listed(gateway: Gateway) -> list[dict[str, Any]]:
    trash: list[dict[str, Any]] = json.loads(gateway.spillway("trash", "list", "--json").stdout)[
        "trash"
    ]
    return trash


def test_a_checkpoint_comes_back_byte_for_byte(gateway: Gateway) -> None:
    files = {"a.distcp": os.urandom(3 * MIB), ".metadata": b"meta"}
    write(gateway, files)
    gateway.until_drained()
    assert put_with(gateway, fingerprint=1) == errno.EBUSY
    with nfs4.Client(gateway.port) as client:
        before = client.handle("checkpoints", *PATH.split("/"), "a.distcp")
        trashed = put(gateway)
        # What a client has open it reads on, and nothing leads there any more.
        assert client.read(before, 0, 4096) == files["a.distcp"][:4096]
        run = client.handle("checkpoints", "run")
        assert client.names(run) == []
        with pytest.raises(nfs4.Status):
            client.handle("checkpoints", ".spillway", "trash", trashed)
    gateway.until_drained()
    assert gateway.objects() == {f"{PATH}/{name}": data for name, data in files.items()}
    facts = gateway.status()
    assert (facts["trash"]["entries"], facts["dirty"]["files"]) == (1, 0)
    assert facts["trash"]["bucket_bytes"] == sum(map(len, files.values()))
    assert 6 * 86_400 < facts["trash"]["next_expiry_seconds"] <= 7 * 86_400
    [entry] = listed(gateway)
    assert (entry["path"], entry["by"]) == (f"/checkpoints/{PATH}", "a person")

    write(gateway, {"a.distcp": b"newer"})
    gateway.until_drained()
    assert gateway.objects() == {
        f"{PATH}/a.distcp": b"newer",
        f".spillway/trash/{trashed}/a.distcp": files["a.distcp"],
        f"{PATH}/.metadata": b"meta",
    }
    refused = gateway.spillway("trash", "restore", trashed, check=False)
    assert refused.returncode == 1 and "there already" in refused.stderr
    gateway.spillway("rm", "-r", PATH)
    gateway.spillway("trash", "restore", f"/checkpoints/{PATH}")
    assert listed(gateway) == []
    gateway.until_drained()
    assert gateway.objects() == {f"{PATH}/{name}": data for name, data in files.items()}
    gateway.evict(PATH)
    with nfs4.Client(gateway.port) as client:
        at = client.handle("checkpoints", *PATH.split("/"), "a.distcp")
        found = [client.read(at, offset, MIB) for offset in range(0, 3 * MIB, MIB)]
        assert b"".join(found) == files["a.distcp"]
    put(gateway)
    asked = gateway.spillway("trash", "empty", "--all", check=False)
    assert asked.returncode == 2 and "--yes" in asked.stderr
    gateway.spillway("trash", "empty", "--all", "--yes")
    assert listed(gateway) == []
    until(lambda: gateway.objects() == {}, "the deletion of the objects")
