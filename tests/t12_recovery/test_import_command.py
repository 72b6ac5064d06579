"""``spillway import`` on a whole gateway: clients see new names at once, and read the objects."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support import nfs4
from tests.support.gateway import Gateway, running
from tests.support.volumes import query
from tests.support.waiting import until

BUCKET = "data-sets"


def read(client: nfs4.Client, directory: bytes, name: str) -> bytes:
    with client.opened(directory, name, reads=True) as file:
        return file.read()


def imported(gateway: Gateway, *arguments: str) -> dict[str, object]:
    done = gateway.spillway("import", *arguments, "--json", check=False)
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_clients_see_what_is_imported(tmp_path: Path) -> None:
    with running(tmp_path / "gateway") as gateway:
        s3 = gateway.server.client()
        s3.create_bucket(Bucket=BUCKET)

        def put(key: str, body: bytes) -> None:
            s3.put_object(Bucket=BUCKET, Key=key, Body=body)

        put("sets/flowers/train/1.jpg", b"rose")
        put("sets/flowers/train/2.jpg", b"tulip")
        found = imported(gateway, f"s3://{BUCKET}/sets/flowers")
        assert (found["state"], found["files"], found["size_bytes"]) == ("whole", 2, 9)
        with nfs4.Client(gateway.port) as client:
            export = gateway.settings.nfs.export.strip("/")
            top = client.handle(export, "flowers")
            train = client.handle(export, "flowers", "train")
            assert client.names(train) == ["1.jpg", "2.jpg"]
            assert read(client, train, "1.jpg") == b"rose"
            # What clients were told to be absent is there after the next listing.
            assert client.is_absent(train, "3.jpg")
            assert client.is_absent(top, "test")
            put("sets/flowers/train/3.jpg", b"daisy")
            put("sets/flowers/test/4.jpg", b"lily")
            put("sets/flowers/train/1.jpg", b"another rose")
            s3.delete_object(Bucket=BUCKET, Key="sets/flowers/train/2.jpg")
            found = imported(gateway, f"s3://{BUCKET}/sets/flowers", "/flowers")
            assert (found["files"], found["gone_files"]) == (4, 1)
            assert not client.is_absent(train, "3.jpg")
            assert not client.is_absent(top, "test")
            assert sorted(client.names(train)) == ["1.jpg", "2.jpg", "3.jpg"]
            assert sorted(client.names(top)) == ["test", "train"]
            assert read(client, train, "1.jpg") == b"another rose"
            assert read(client, train, "3.jpg") == b"daisy"
            gateway.evict("/flowers/train/3.jpg")
            assert read(client, train, "3.jpg") == b"daisy"
            listed = gateway.spillway("import", check=False).stdout
            assert "1 files are GONE from the bucket" in listed
            keys = gateway.server.files(BUCKET)
            gateway.spillway("import", "--remove", "/flowers")
            root = client.handle(export)
            assert client.is_absent(root, "flowers")
            assert client.names(root) == []
        assert gateway.server.files(BUCKET) == keys
        others = [r for r in gateway.proxy.operations() if r.bucket == BUCKET]
        assert {request.method for request in others} <= {"GET", "HEAD"}
        assert others
        gateway.until_drained()
        assert gateway.objects() == {}
        until(
            lambda: query(gateway.settings, "SELECT ino FROM imported_object") == [],
            "the end of all local copies",
        )
