"""A bad hour of the bucket in a few seconds: seeded faults beside a real workload.

``SPILLWAY_FAULT_SECONDS`` sets its length, ``SPILLWAY_FAULT_SEED`` its faults.
"""

from __future__ import annotations

import hashlib
import os
import random
import time
from collections import Counter
from datetime import UTC, datetime

from gateway.db.engine import Database
from gateway.drain.context import Context
from gateway.drain.tidy import garbage
from gateway.objectstore.s3 import S3Store
from tests.support.drainsite import MIB, PREFIX, Site
from tests.support.s3proxy import Act, Fault, Request
from tests.support.waiting import until

SECONDS = float(os.environ.get("SPILLWAY_FAULT_SECONDS", "15"))
SEED = int(os.environ.get("SPILLWAY_FAULT_SEED", "7"))
PAUSE_SECONDS = 0.03
WRITES = ("PUT", "PART", "COPY", "PART COPY", "CREATE", "COMPLETE")


class Storm:
    """The faults: single faults at any time, and storms in which each answer is 503."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._storm_until = 0.0
        self.is_over = False
        self.counts: Counter[str] = Counter()
        self.repeats = 0
        """The number of objects stored without a usable answer: each may be sent again."""

    def fault(self, request: Request) -> Fault | None:
        if self.is_over:
            return None
        roll = self._random.random()
        if time.monotonic() < self._storm_until:
            return self._made(request, Act.FAIL, 503, "SlowDown")
        if roll < 0.004:
            self._storm_until = time.monotonic() + 0.7
        if roll > 0.15:
            return None
        choices = [
            (Act.FAIL, 503, "SlowDown"),
            (Act.FAIL, 500, "InternalError"),
            (Act.DROP, 0, ""),
            (Act.DROP_ANSWER, 0, ""),
            (Act.SLOW, 0, ""),
            (Act.TRUNCATE, 0, ""),
        ]
        if request.operation in ("PUT", "PART"):
            choices.append((Act.WRONG_ETAG, 0, ""))
        if roll < 0.002:
            choices = [(Act.FAIL, 403, "RequestTimeTooSkewed")]
        return self._made(request, *self._random.choice(choices))

    def cuts_body(self, length: int) -> bool:
        cut = not self.is_over and length > 4 and self._random.random() < 0.01
        self.counts["reset in a body"] += cut
        return cut

    def _made(self, request: Request, act: Act, status: int, code: str) -> Fault:
        self.counts[code or act.value] += 1
        if act != Act.FAIL and act not in (Act.DROP, Act.SLOW):
            self.repeats += request.operation in ("PUT", "COMPLETE")
        return Fault(lambda _request: True, act, 1, status, code)


class Workload:
    """The work of clients, and the files that the bucket must have at the end."""

    def __init__(self, site: Site, seed: int) -> None:
        self._site = site
        self._random = random.Random(seed)
        self.files: dict[str, bytes] = {}
        self.versions = 0
        self._count = 0

    def step(self) -> None:
        often = [self.save] * 3
        self._random.choice(
            [*often, self.large, self.rewrite, self.rename, self.move, self.unlink]
        )()

    def save(self) -> None:
        """Save a file as a library does: first under a temporary name."""
        self._count += 1
        path = f"d{self._random.randrange(4)}/f{self._count}"
        self._write(path + ".tmp", os.urandom(self._random.randrange(5000)))
        self._rename(path + ".tmp", path)

    def large(self) -> None:
        if self._random.random() < 0.2:
            self._count += 1
            self._write(f"large{self._count}", os.urandom(11 * MIB))

    def rewrite(self) -> None:
        if self.files:
            self._write(self._any(), os.urandom(self._random.randrange(5000)))

    def rename(self) -> None:
        if self.files:
            self._count += 1
            self._rename(self._any(), f"renamed{self._count}")

    def move(self) -> None:
        """Rename a whole directory."""
        old = f"d{self._random.randrange(4)}"
        below = [path for path in self.files if path.startswith(old + "/")]
        if below:
            self._count += 1
            self._site.rename(old, f"moved{self._count}")
            for path in below:
                self.files[f"moved{self._count}" + path[len(old) :]] = self.files.pop(path)

    def unlink(self) -> None:
        if self.files:
            path = self._any()
            self._site.unlink(path)
            del self.files[path]

    def _any(self) -> str:
        return self._random.choice(sorted(self.files))

    def _write(self, path: str, data: bytes) -> None:
        self._site.write(path, data)
        self.files[path] = data
        self.versions += 1

    def _rename(self, old: str, new: str) -> None:
        self._site.rename(old, new)
        self.files[new] = self.files.pop(old)


def test_a_bad_hour_of_the_bucket(site: Site) -> None:
    storm = Storm(SEED)
    workload = Workload(site, SEED)
    site.proxy.weather, site.proxy.cuts_body = storm.fault, storm.cuts_body
    site.configure(processes=1)
    with site.process():
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            workload.step()
            time.sleep(PAUSE_SECONDS)
        storm.is_over = True
        until(site.is_clean, "everything is drained", 60)
    assert len(storm.counts) >= 7, storm.counts
    files = site.objects()
    tell(site, set(files.keys() ^ workload.files.keys()))
    assert files == workload.files
    check_rows(site, workload.files)
    requests = site.proxy.operations(*WRITES)
    assert not [request.key for request in requests if ".tmp" in request.key]
    objects = [r for r in requests if r.operation in ("PUT", "COMPLETE") and r.status == 200]
    print(f"{workload.versions} versions, {len(objects)} objects made, faults {storm.counts}")
    assert len(objects) <= workload.versions + storm.repeats
    assert abandoned_uploads(site) == 0


def tell(site: Site, paths: set[str]) -> None:
    """Print the requests at the keys of surplus or missing objects."""
    keys = {f"{PREFIX}/{path}" for path in paths}
    for request in site.proxy.operations():
        if request.key in keys or keys & {*request.keys}:
            named = request.key or sorted(keys & {*request.keys})
            print(f"{request.time:.3f} {request.operation} {named} {request.status}")


def check_rows(site: Site, files: dict[str, bytes]) -> None:
    """Require that each object is recorded with the checksum of its file."""
    rows = site.rows("SELECT key, size, checksum FROM object")
    assert {row[0] for row in rows} == {f"{PREFIX}/{path}" for path in files}
    for key, size, checksum in rows:
        data = files[key.removeprefix(PREFIX + "/")]
        kind, _, digest = checksum.partition(":")
        if kind == "md5-parts":
            part_bytes, _, digest = digest.partition(":")
            step = int(part_bytes)
            md5s = [hashlib.md5(data[at : at + step]).digest() for at in range(0, size, step)]
            data = b"".join(md5s)
        assert digest == hashlib.md5(data).hexdigest(), key


def abandoned_uploads(site: Site) -> int:
    """Run the daily clean-up of uploads whose answers were lost. Returns the unfinished uploads."""
    database = Database(site.settings.database_url)
    now = datetime.now(UTC)
    garbage.abort_unrecorded(Context(site.settings, database, S3Store(site.settings)), now, now)
    database.close()
    return site.multiparts()
