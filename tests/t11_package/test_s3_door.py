"""The recipe of docs/tasks/s3-door.md: what clients of S3 see, and which names appear."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import BotoCoreError, ClientError

from gateway.common.patterns import IncompleteNames
from gateway.config.settings import DrainSettings
from tests.support.t11.door import UNIT, Door
from tests.support.t11.inotify import watching
from tests.support.units import EXPOSURE_MAX
from tests.support.waiting import until

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

MIB = 1024 * 1024
PART = b"p" * (5 * MIB)
HELD = IncompleteNames(DrainSettings().incomplete_patterns)


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    with Door(tmp_path / "door") as door:
        (door.mount / "team").mkdir()
        yield door


def names(door: Door) -> set[str]:
    """Return the names of the files of the bucket ``team``, as the gateway would see them."""
    return {
        str(path.relative_to(door.mount / "team"))
        for path in door.mount.rglob("*")
        if path.is_file()
    }


def are_held(names: set[str]) -> bool:
    """Return whether there are names, and the gateway keeps all of them from its bucket."""
    return bool(names) and all(HELD.holds([], Path(name).name.encode()) for name in names)


class Slow(io.BytesIO):
    """A body whose second half is sent when the test says so.

    Args:
        body: has at least some mebibytes.
    """

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self.is_half = threading.Event()
        self.may_continue = threading.Event()

    def read(self, size: int | None = -1, /) -> bytes:
        half = len(self.getbuffer()) // 2
        if self.tell() >= half:
            self.is_half.set()
            assert self.may_continue.wait(30)
        return super().read(size)


def test_programs_put_get_list_and_delete(door: Door) -> None:
    client = door.client()
    client.put_object(Bucket="team", Key="run/step-1/model.bin", Body=b"one")
    assert (door.mount / "team/run/step-1/model.bin").read_bytes() == b"one"
    # Another client of the mount.
    (door.mount / "team/run/step-1/index.json").write_bytes(b"{}")

    def listed() -> dict[str, int]:
        found = client.list_objects_v2(Bucket="team", Prefix="run/")
        return {one["Key"]: one["Size"] for one in found["Contents"]}

    both = {"run/step-1/model.bin": 3, "run/step-1/index.json": 2}
    until(lambda: listed() == both, "the door shows what others wrote", 10.0)
    assert client.get_object(Bucket="team", Key="run/step-1/index.json")["Body"].read() == b"{}"
    # To tell more it would read the file.
    assert client.head_object(Bucket="team", Key="run/step-1/model.bin")["ETag"] == '""'
    client.delete_object(Bucket="team", Key="run/step-1/index.json")
    assert listed() == {"run/step-1/model.bin": 3}
    assert names(door) == {"run/step-1/model.bin"}


def test_no_request_without_a_key(door: Door) -> None:
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        door.client("wrong").list_objects_v2(Bucket="team")


def test_an_upload_in_parts_has_names_that_are_held(door: Door) -> None:
    client = door.client()
    upload = client.create_multipart_upload(Bucket="team", Key="model.bin")["UploadId"]
    parts: list[CompletedPartTypeDef] = []
    for number in (1, 2):
        sent = client.upload_part(
            Bucket="team", Key="model.bin", UploadId=upload, PartNumber=number, Body=PART
        )
        parts.append({"PartNumber": number, "ETag": sent["ETag"]})
        assert are_held(names(door)), names(door)
    client.complete_multipart_upload(
        Bucket="team", Key="model.bin", UploadId=upload, MultipartUpload={"Parts": parts}
    )
    assert names(door) == {"model.bin"}
    assert (door.mount / "team/model.bin").read_bytes() == 2 * PART


def test_a_large_file_of_the_library_arrives(door: Door, tmp_path: Path) -> None:
    """boto3 sends the parts of one file at the same time, in any order."""
    (tmp_path / "file").write_bytes(PART + b"end" + PART)
    config = TransferConfig(multipart_threshold=1, multipart_chunksize=5 * MIB)
    door.client().upload_file(str(tmp_path / "file"), "team", "model.bin", Config=config)
    assert (door.mount / "team/model.bin").read_bytes() == PART + b"end" + PART


BEFORE = b"the one before"


@contextmanager
def half_put(door: Door, after: type[Exception] | None = None) -> Iterator[Slow]:
    """Have a key replaced by a PUT, of which the door has a part.

    Args:
        after: what the client must get in the end. None: its answer.
    """
    client, body = door.client(), Slow(PART)
    (door.mount / "team/model.bin").write_bytes(BEFORE)

    def put() -> None:
        with pytest.raises(after) if after is not None else nullcontext():
            client.put_object(Bucket="team", Key="model.bin", Body=body)

    with ThreadPoolExecutor(1) as pool:
        putting = pool.submit(put)
        assert body.is_half.wait(30)
        until(lambda: len(names(door)) > 1, "the door writes")
        yield body
        body.may_continue.set()
        putting.result()


def test_a_put_has_a_name_that_is_held(door: Door) -> None:
    with half_put(door):
        assert are_held(names(door) - {"model.bin"}), names(door)
        assert (door.mount / "team/model.bin").read_bytes() == BEFORE
    assert names(door) == {"model.bin"}
    assert (door.mount / "team/model.bin").read_bytes() == PART


def test_a_door_that_is_killed_leaves_nothing_but_held_names(door: Door) -> None:
    with half_put(door, BotoCoreError):
        door.stop()
    assert are_held(names(door) - {"model.bin"}), names(door)
    assert (door.mount / "team/model.bin").read_bytes() == BEFORE


def test_a_key_is_absent_for_a_moment_when_it_is_replaced(door: Door) -> None:
    """The page says so. If a release of rclone replaces it at once, the page can say that."""
    (door.mount / "team/model.bin").write_bytes(BEFORE)
    with watching(door.mount / "team") as seen:
        door.client().put_object(Bucket="team", Key="model.bin", Body=b"new")
        final = [what for what, name in seen() if name == "model.bin"]
    assert final == ["removed", "renamed to"]


def test_clients_must_not_send_checksums_behind_the_body(door: Door) -> None:
    """The page says so: it is what boto3 and the AWS CLI do by default over https."""
    with pytest.raises(ClientError, match="MissingContentLength"):
        door.client(checksums="when_supported").put_object(Bucket="team", Key="a", Body=b"a")


def test_the_service_is_as_confined_as_those_of_the_package(tmp_path: Path) -> None:
    units = tmp_path / "usr/lib/systemd/system"
    units.mkdir(parents=True)
    shutil.copy(UNIT, units)
    (tmp_path / "usr/bin").mkdir()
    shutil.copy("/bin/true", tmp_path / "usr/bin/rclone")
    analyze = ["systemd-analyze", f"--root={tmp_path}", "--no-pager"]
    verified = subprocess.run([*analyze, "verify", UNIT.name], capture_output=True, text=True)
    # The root has no other units, so it cannot be complete.
    wrong = [line for line in verified.stderr.splitlines() if "not found" not in line]
    assert wrong == []
    done = subprocess.run(
        [*analyze, "security", "--offline=true", UNIT.name],
        check=True,
        capture_output=True,
        text=True,
    )
    match = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
    assert match is not None
    assert float(match[1]) <= EXPOSURE_MAX
