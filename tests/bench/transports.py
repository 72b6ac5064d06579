"""Compares the gateway's transport with awscrt's S3 client: ``python -m tests.bench.transports``.

Both send the same requests, so many at a time, to the same server (``rclone serve s3`` over files
in memory), in turn, over TLS and over plain HTTP. Each turn is a process of its own. Printed are
medians: the rate, the processor time of that process alone, and its peak memory.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from threading import Semaphore, local
from typing import Any, NamedTuple, TypeVar

from awscrt import auth, http, io, s3
from awscrt.checksums import crc64nvme

from gateway.objectstore.bodies import FileRange
from gateway.objectstore.checksums import ChecksumKind
from gateway.objectstore.client import BucketConnection
from tests.bench import report
from tests.support.certificates import certify
from tests.support.s3server import ACCESS_KEY, SECRET_KEY, RcloneServer, credentials
from tests.support.volumes import make_settings

MIB = 1024 * 1024
BUCKET = "bench"
AT_ONCE = 8
BUFFER_BYTES = MIB
RANGE_BYTES = 16 * MIB
ROUNDS = 5
COLUMNS = ("requests", "over", "transport", "a second", "processor", "peak memory")
T = TypeVar("T")


class Load(NamedTuple):
    """Files of one size."""

    name: str
    files: int
    size: int
    is_read: bool

    @property
    def unit(self) -> tuple[float, str]:
        """How often the unit of the processor time is in the load, and its name."""
        if self.size >= MIB:
            return self.files * self.size / 2**30, "GiB"
        return self.files / 1000, "1,000 objects"


LOADS = (
    Load("PUT 16 x 64 MiB", 16, 64 * MIB, False),
    Load("PUT 2,000 x 4 KiB", 2000, 4096, False),
    Load("GET 16 x 64 MiB in ranges of 16 MiB", 16, 64 * MIB, True),
)


class Run(NamedTuple):
    """One measurement."""

    seconds: float
    processor_seconds: float
    peak_bytes: int
    crcs: list[int]
    """The CRCs of the bytes that were read."""


class Range(NamedTuple):
    """Bytes of an object that are written into a file, as a cold read does."""

    key: str
    start: int
    fd: int


class Own:
    """The gateway's transport.

    Args:
        directory: directory with data.
        url: url of the server.
    """

    def __init__(self, directory: Path, url: str) -> None:
        ca_bundle = str(directory / "ca.pem") if url.startswith("https") else ""
        bucket = {"name": BUCKET, "endpoint_url": url, "path_style": True, "ca_bundle": ca_bundle}
        settings = make_settings(directory / "data", {"bucket": bucket})
        settings.credentials_file.parent.mkdir(parents=True, exist_ok=True)
        settings.credentials_file.touch(0o600)
        settings.credentials_file.write_text(credentials())
        self._wire = BucketConnection(settings, None, 1).wire
        self._buffers = local()

    def put(self, paths: Sequence[Path]) -> None:
        """Send files, each with one request."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(self._put, paths))

    def get(self, ranges: Sequence[Range]) -> list[int]:
        """Read ranges. Returns the CRC of each."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(self._get, ranges))

    def _put(self, path: Path) -> None:
        with path.open("rb") as file:
            body = FileRange(file.fileno(), 0, os.fstat(file.fileno()).st_size)
            self._wire.put("put_object", path.name, {}, {}, body, ChecksumKind.CRC64NVME)

    def _get(self, byte_range: Range) -> int:
        at, crc = byte_range.start, 0
        if not hasattr(self._buffers, "view"):
            self._buffers.view = memoryview(bytearray(BUFFER_BYTES))
        view = self._buffers.view
        with self._wire.get(byte_range.key, {}, _range(byte_range), RANGE_BYTES) as incoming:
            while count := incoming.readinto(view):
                crc = crc64nvme(view[:count], crc)
                os.pwrite(byte_range.fd, view[:count], at)
                at += count
        return crc


class Crt:
    """awscrt's client.

    Args:
        directory: directory with the certificate.
        url: url of the server.
    """

    def __init__(self, directory: Path, url: str) -> None:
        scheme, self._host = url.split("://")
        self._is_tls = scheme == "https"
        provider = auth.AwsCredentialsProvider.new_static(ACCESS_KEY, SECRET_KEY)
        self._signing = s3.create_default_s3_signing_config(
            region="us-east-1", credential_provider=provider
        )
        tls = io.TlsContextOptions()
        if self._is_tls:
            tls.override_default_trust_store_from_path(None, str(directory / "ca.pem"))
        mode = s3.S3RequestTlsMode.ENABLED if self._is_tls else s3.S3RequestTlsMode.DISABLED
        self._client = s3.S3Client(
            region="us-east-1",
            tls_mode=mode,
            tls_connection_options=io.ClientTlsContext(tls).new_connection_options(),
            signing_config=self._signing,
            part_size=RANGE_BYTES,
            multipart_upload_threshold=1024 * MIB,
            max_active_connections_override=AT_ONCE,
            retry_config=s3.S3RetryConfig(retry_mode=s3.S3RetryMode.NONE),
        )

    def put(self, paths: Sequence[Path]) -> None:
        """Send files, each with one request."""
        self._all(self._put, paths)

    def get(self, ranges: Sequence[Range]) -> list[int]:
        """Read ranges. Returns the CRC of each."""
        crcs = dict.fromkeys(ranges, 0)

        def get(byte_range: Range, done: Callable[..., None]) -> Any:
            def take(chunk: bytes, offset: int, **_: Any) -> None:
                # The offset is that in the object.
                crcs[byte_range] = crc64nvme(chunk, crcs[byte_range])
                os.pwrite(byte_range.fd, chunk, offset)

            request = http.HttpRequest(
                "GET", f"/{BUCKET}/{byte_range.key}", self._headers(_range(byte_range))
            )
            return self._client.make_request(
                type=s3.S3RequestType.GET_OBJECT, request=request, on_body=take, on_done=done
            )

        self._all(get, ranges)
        return list(crcs.values())

    def _all(self, send: Callable[[T, Callable[..., None]], Any], items: Iterable[T]) -> None:
        free, begun = Semaphore(AT_ONCE), []
        for item in items:
            free.acquire()
            begun.append(send(item, lambda **_: free.release()))
        for request in begun:
            request.finished_future.result()

    def _put(self, path: Path, done: Callable[..., None]) -> Any:
        signing = self._signing
        if not self._is_tls:
            # As S3 asks for it.
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            signing = signing.replace(signed_body_value=sha256)
        headers = self._headers({"Content-Length": str(path.stat().st_size)})
        return self._client.make_request(
            type=s3.S3RequestType.PUT_OBJECT,
            request=http.HttpRequest("PUT", f"/{BUCKET}/{path.name}", headers),
            send_filepath=str(path),
            signing_config=signing,
            checksum_config=s3.S3ChecksumConfig(
                s3.S3ChecksumAlgorithm.CRC64NVME, s3.S3ChecksumLocation.HEADER
            ),
            on_done=done,
        )

    def _headers(self, others: dict[str, str]) -> Any:
        return http.HttpHeaders([("Host", self._host), *others.items()])


NAMES = {Own: "gateway's", Crt: "awscrt's"}


def _range(byte_range: Range) -> dict[str, str]:
    return {"Range": f"bytes={byte_range.start}-{byte_range.start + RANGE_BYTES - 1}"}


def _files(directory: Path, load: Load) -> list[Path]:
    return [directory / f"{load.size}-{number}" for number in range(load.files)]


def _measure(side: type[Own] | type[Crt], directory: Path, url: str, load: Load) -> Run:
    """Carry out a load in this process."""
    client, paths, crcs = side(directory, url), _files(directory, load), []
    with (directory / "read").open("wb") as file:
        starts = range(0, load.size, RANGE_BYTES)
        ranges = [Range(path.name, start, file.fileno()) for path in paths for start in starts]
        began, used = time.monotonic(), time.process_time()
        if load.is_read:
            crcs = client.get(ranges)
        else:
            client.put(paths)
        seconds, processor = time.monotonic() - began, time.process_time() - used
    [peak] = re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return Run(seconds, processor, int(peak) * 1024, crcs)


def _cells(load: Load, runs: Sequence[Run]) -> tuple[str, str, str]:
    count, unit = load.unit
    rate = median(count / run.seconds for run in runs)
    used = median(run.processor_seconds / count for run in runs)
    peak = median(run.peak_bytes for run in runs)
    shown = f"{rate * 1024:,.0f} MiB" if unit == "GiB" else f"{rate * 1000:,.0f} objects"
    return shown, f"{used:.2f} s / {unit}", f"{peak / MIB:,.0f} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"), help="in memory")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    rows = []
    with tempfile.TemporaryDirectory(dir=args.directory) as name:
        directory = Path(name)
        certify(directory)
        for load in LOADS[:2]:
            data = os.urandom(load.size)
            for path in _files(directory, load):
                path.write_bytes(data)
        tls = ("--cert", str(directory / "server.pem"), "--key", str(directory / "server.key"))
        for over, options in (("TLS", tls), ("HTTP", ())):
            with RcloneServer(directory / f"s3-{over}", options) as server:
                (server.directory / BUCKET).mkdir()
                url = server.url.replace("http:", "https:") if options else server.url
                for load in LOADS:
                    runs: dict[type[Own] | type[Crt], list[Run]] = {Own: [], Crt: []}
                    for number in range(args.rounds):
                        for side in (Own, Crt) if number % 2 == 0 else (Crt, Own):
                            with context.Pool(1) as pool:
                                given = (side, directory, url, load)
                                runs[side].append(pool.apply(_measure, given))
                    assert len({tuple(run.crcs) for both in runs.values() for run in both}) == 1
                    for side, run in runs.items():
                        rows.append((load.name, over, NAMES[side], *_cells(load, run)))
                        print("  ".join(rows[-1]), flush=True)
    print(report.markdown(COLUMNS, rows))


if __name__ == "__main__":
    main()
