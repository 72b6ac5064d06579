"""The objects of an S3 server are read while it changes them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.s3server import RcloneServer

ROUNDS = 200


def test_objects_that_are_deleted_meanwhile_are_left_out(tmp_path: Path) -> None:
    with RcloneServer(tmp_path / "s3") as server, ThreadPoolExecutor(1) as pool:
        client = server.client()
        client.create_bucket(Bucket="bucket")
        client.put_object(Bucket="bucket", Key="run/shard", Body=b"bytes")

        def come_and_go() -> None:
            for _ in range(ROUNDS):
                client.put_object(Bucket="bucket", Key="gone/soon", Body=b"")
                client.delete_object(Bucket="bucket", Key="gone/soon")

        changes = pool.submit(come_and_go)
        while not changes.done():
            assert server.files("bucket").get("run/shard") == b"bytes"
        changes.result()
        assert server.files("bucket") == {"run/shard": b"bytes"}


def test_a_bucket_without_objects_has_no_files(tmp_path: Path) -> None:
    assert RcloneServer(tmp_path / "s3").files("bucket") == {}


@pytest.mark.parametrize("prefix", [".rclone_temp_put_", ".rclone_multipart_upload_"])
def test_a_temporary_file_of_the_server_is_left_out_as_in_its_listing(
    prefix: str, tmp_path: Path
) -> None:
    with RcloneServer(tmp_path / "s3") as server:
        client = server.client()
        client.create_bucket(Bucket="bucket")
        client.put_object(Bucket="bucket", Key="run/shard", Body=b"bytes")
        (server.directory / "bucket" / "run" / f"{prefix}1").write_bytes(b"half an upload")
        listed = client.list_objects_v2(Bucket="bucket", Prefix="run/")["Contents"]
        assert [entry["Key"] for entry in listed] == ["run/shard"]
        assert server.files("bucket") == {"run/shard": b"bytes"}
