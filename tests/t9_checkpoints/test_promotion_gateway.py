"""Promotions of a whole gateway: clients see them whole, and read them from the bucket."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from tests.support import nfs4
from tests.support.gateway import Gateway, running
from tests.support.waiting import until

MIB = 1024 * 1024
SIZE = 5 * MIB + 4321


def write(client: nfs4.Client, directory: bytes, name: str, data: bytes) -> None:
    with client.opened(directory, name) as file:
        for offset in range(0, len(data), MIB):
            file.write(data[offset : offset + MIB], offset)


def digests(client: nfs4.Client, *path: str) -> dict[str, str]:
    """Return the SHA-256 of each file in a directory, as a client reads it."""
    directory = client.handle(*path)
    found = {}
    for name in client.names(directory):
        at, size = client.handle(*path, name), client.lookup(directory, name).size
        data = b"".join(client.read(at, offset, MIB) for offset in range(0, size, MIB))
        found[name] = hashlib.sha256(data).hexdigest()
    return found


def keys(gateway: Gateway) -> set[str]:
    return {key for key in gateway.objects() if "probe" not in key}


@pytest.mark.timeout(300)
def test_what_is_promoted_is_read_when_the_original_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The bucket would keep what clients remove until a newer one is there.
    monkeypatch.setenv("SPILLWAY_RETENTION_ROTATION_HOURS", "0")
    written = {"__0_0.distcp": os.urandom(SIZE), "__1_0.distcp": b"x", ".metadata": b"all of it"}
    with running(tmp_path) as gateway:
        gateway.spillway("mkdir", "-p", "job/step-5")
        with nfs4.Client(gateway.port) as client:
            promoted = client.handle("checkpoints", ".spillway", "promoted")
            assert client.names(promoted) == []
            with pytest.raises(nfs4.Status):
                client.lookup(promoted, "best")
            step = client.handle("checkpoints", "job", "step-5")
            for name, data in written.items():
                write(client, step, name, data)
            # It waits until the checkpoint is durable.
            done = json.loads(
                gateway.spillway(
                    "checkpoint", "promote", "job/step-5", "--as", "best", "--json"
                ).stdout
            )
            assert (done["state"], done["files"], done["step"]) == ("done", 3, 5)
            assert client.names(promoted) == ["best"]
            for name in written:
                client.remove(step, name)
            wanted = {name: hashlib.sha256(data).hexdigest() for name, data in written.items()}
            kept = {f".spillway/promoted/best/{name}" for name in written}
            kept.add(".spillway/promoted/best.json")
            until(lambda: keys(gateway) == kept, "the deletion of the original's objects")
            best = ("checkpoints", ".spillway", "promoted", "best")
            assert digests(client, *best) == wanted
            # What clients read is kept on the disk, and given up, as any file.
            gateway.evict("/checkpoints/.spillway/promoted/best")
            gateway.kill("ganesha")
        gateway.until_said("ganesha ready", 2)
        with nfs4.Client(gateway.port) as client:
            assert digests(client, *best) == wanted
            directory = client.handle(*best)
            with pytest.raises(nfs4.Status) as refused:
                client.remove(directory, ".metadata")
            assert refused.value.number == nfs4.ROFS
            gateway.spillway("promotion", "remove", "best", "--yes")
            assert client.names(client.handle(*best[:-1])) == []
            with pytest.raises(nfs4.Status):
                client.getattr(directory)
        until(lambda: keys(gateway) == set(), "the deletion of the copy's objects")
        assert gateway.spillway("promotion", "list").stdout == "nothing is promoted\n"
