"""A site as a week of training leaves it, for pictures of the pages and for tests of each page.

Names, rows and reports are real; the bytes of the checkpoints are holes. The gateway does not run:
what its processes report is written by hand, under the pid of this process.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from hashlib import md5
from typing import Any

from sqlalchemy import text

from gateway.catalogue.store import rules_of
from gateway.common import clock
from gateway.common.types import Sealed
from gateway.config.settings import Settings
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.lifecycle.promotion import members
from gateway.lifecycle.promotion import store as promotions
from gateway.lifecycle.retention import policy, store
from gateway.lifecycle.retention.facts import PlanCheckpoint
from gateway.namespace import lookup
from gateway.nfs.export_service import ExportService, WantedExport
from gateway.objectstore import key_mapper
from tests.support.checkpoints.records import record
from tests.support.checkpoints.trashing import trash_of
from tests.support.checkpoints.world import World, follow
from tests.support.namespace import Namespace
from tests.support.volumes import query

GIB = 1 << 30
MINUTE_NS = 60 * clock.NS
HOUR_NS = 60 * MINUTE_NS

BLOCK_BYTES = 4 << 20
UPLOADS = ((6, 27), (7, 21), (8, 14), (9, 3))
"""The ranks whose files are on their way, and the GiB that were sent."""

PRETRAIN, SFT, VISION = "llama-70b/pretrain-v3", "qwen-moe/sft-chat", "vit-l/finetune"

POLICIES: Sequence[dict[str, Any]] = (
    {
        "name": "pretrain-ladder",
        "run": "llama-70b/*",
        "keep_newest": 3,
        "keep_every_steps": 10_000,
        "evict_after_hours": 6,
    },
    {
        "name": "sft-best",
        "run": "qwen-moe/*",
        "keep_newest": 2,
        "thin": [{"older_than_days": 1, "one_per_hours": 6}],
        "wait_hours": 1,
    },
    {"name": "expire-experiments", "path": "scratch/**", "delete_after_days": 14},
)


def seed(settings: Settings) -> None:
    """Fill the namespace of a gateway that was set up and does not run."""
    namespace = Namespace(settings)
    world = World(settings, namespace)
    try:
        _save_runs(world)
        follow(world.follower())
        trashed = _throw_away(world)
        follow(world.follower())
        _age(settings)
        record(settings)
        _govern(settings, world, trashed)
        _fail_one(settings, world)
        _evict_one(settings, world)
        _begin_uploads(settings, world)
    finally:
        world.end()
        namespace.close()
    _export(settings)
    _report(settings)


def _save_runs(world: World) -> None:
    for step in range(36_000, 45_001, 1000):
        _save(world, f"{PRETRAIN}/step-{step}", 16, 32_600_000_000, 16)
    _save(world, f"{PRETRAIN}/step-46000", 16, 32_600_000_000, 6)
    for step in range(200, 2601, 200):
        _save(world, f"{SFT}/step-{step}", 8, 11_800_000_000, 8)
    _write(world, f"{SFT}/step-2800/__0_0.distcp", 11_800_000_000)
    world.open(f"{SFT}/step-2800/__1_0.distcp")
    for step in range(5000, 60_001, 5000):
        _save(world, f"{VISION}/step-{step}", 2, 1_260_000_000, 2)
    _save(world, f"{VISION}/step-65000", 2, 1_260_000_000, 0)
    _write(world, "datasets/tokenizer.model", 4_300_000)
    _write(
        world, "scratch/a name with spaces and a very long tail that says what was tried.pt", GIB
    )


def _save(world: World, path: str, shards: int, size_bytes: int, drained: int) -> None:
    for rank in range(shards):
        _write(world, f"{path}/__{rank}_0.distcp", size_bytes)
    _write(world, f"{path}/.metadata", 412_000)
    names = [f"{path}/__{rank}_0.distcp" for rank in range(drained)]
    names += [f"{path}/.metadata"] if drained == shards else []
    _drain(world, names)


def _write(world: World, path: str, size_bytes: int) -> None:
    world.open(path)
    attr = world.opened.pop(path)
    with world.namespace.files.path(attr.ino, attr.epoch).open("wb") as file:
        file.truncate(size_bytes)
    world.namespace.seal(attr.ino, Sealed(size_bytes, size_bytes, clock.now_ns(), 1))


def _drain(world: World, paths: Sequence[str]) -> None:
    """Record that the bucket has files, as the drain does, in one transaction."""
    engine = Database(world.settings.database_url).engine()
    prefix, now_ns = world.settings.bucket.prefix, clock.now_ns()
    with engine.begin() as connection:
        for path in paths:
            ino = world.attr(path).ino
            key = key_mapper.key_of(prefix, tuple(path.encode().split(b"/")))
            connection.execute(
                text("UPDATE inode SET drained_version = content_version WHERE ino = :ino"),
                {"ino": ino},
            )
            connection.execute(
                text(
                    "INSERT INTO object SELECT ino, :key, content_version, size, :md5,"
                    " 'md5:' || :md5, :now, NULL FROM inode WHERE ino = :ino"
                ),
                {"ino": ino, "key": key, "md5": md5(key.encode()).hexdigest(), "now": now_ns},
            )
            connection.execute(
                text("INSERT INTO block_digest VALUES (:ino, 4194304, :crcs)"),
                {"ino": ino, "crcs": bytes(8)},
            )
            connection.execute(
                text("INSERT INTO journal (what, inos) VALUES (4, :inos)"), {"inos": f"[{ino}]"}
            )
    engine.dispose()


def _age(settings: Settings) -> None:
    """Let the checkpoints of a run follow each other in the pace of its saves."""
    paces = {PRETRAIN: 95 * MINUTE_NS, SFT: 22 * MINUTE_NS, VISION: 6 * HOUR_NS}
    lags = {PRETRAIN: 31 * MINUTE_NS, SFT: 4 * MINUTE_NS, VISION: MINUTE_NS}
    now_ns = clock.now_ns()
    for run, pace_ns in paces.items():
        rows = query(
            settings,
            "SELECT ino, state FROM checkpoint WHERE run = :run ORDER BY step DESC",
            run=run.encode(),
        )
        for place, (ino, state) in enumerate(rows):
            at_ns = now_ns - 9 * MINUTE_NS - place * pace_ns
            query(
                settings,
                "UPDATE checkpoint SET complete_ns = :at WHERE ino = :ino AND complete_ns > 0",
                at=at_ns,
                ino=ino,
            )
            if state == "durable":
                query(
                    settings,
                    "UPDATE checkpoint SET durable_ns = :at WHERE ino = :ino",
                    at=at_ns + lags[run],
                    ino=ino,
                )
            query(
                settings,
                "UPDATE checkpoint SET dirty_since_ns = :at WHERE ino = :ino AND dirty_files > 0",
                at=at_ns,
                ino=ino,
            )
    query(
        settings,
        "INSERT INTO manifest SELECT '.spillway/checkpoints/' || ino || '.json', ino, path, 1,"
        " evidence, durable_ns, 'e', durable_ns, NULL FROM checkpoint WHERE state = 'durable'",
    )
    query(
        settings,
        "UPDATE inode SET drain_after_ns = drain_after_ns - :back WHERE drain_after_ns > 0",
        back=9 * MINUTE_NS,
    )


def _throw_away(world: World) -> list[PlanCheckpoint]:
    checkpoints = []
    trash = trash_of(world)
    for step, by in ((38_000, "pretrain-ladder v2"), (36_000, "pretrain-ladder v2")):
        row = world.row(f"{PRETRAIN}/step-{step}")
        assert row is not None
        trash.put(row.ino, row.path, row.evidence, by, "it is not among the newest 3")
        given = {name: getattr(row, name) for name in PlanCheckpoint._fields if hasattr(row, name)}
        checkpoints.append(PlanCheckpoint(**given))
    return checkpoints


def _govern(settings: Settings, world: World, trashed: Sequence[PlanCheckpoint]) -> None:
    database = Database(settings.database_url)
    with database.writing() as session:
        for number, document in enumerate(POLICIES):
            read = policy.of(document)
            if number == 0:
                earlier = policy.of({**document, "keep_newest": 5})
                store.put(session, earlier, "mara")
            store.put(session, read, "mara" if number < 2 else "jonas")
        store.switch(session, "expire-experiments", False, "jonas")
        for checkpoint in trashed:
            reason = "it is not among the newest 3 and its step is no multiple of 10000"
            author = "pretrain-ladder v2"
            action = store.begin(session, "trash", checkpoint, author, reason, checkpoint.evidence)
            store.end(session, action, "in the trash")
        row = world.row(f"{PRETRAIN}/step-40000")
        assert row is not None
        note = "evaluation of Thursday compares against it"
        lookup.add(session, lookup.PinRow(row.ino, note, "mara", clock.now_ns() - 5 * HOUR_NS))
    _promote(settings, database, world)
    database.close()
    for table, column, back_ns in (
        ("policy", "created_ns", 31 * HOUR_NS),
        ("action", "began_ns", 2 * HOUR_NS),
        ("promotion", "asked_ns", 11 * MINUTE_NS),
        ("trash", "deleted_ns", 2 * HOUR_NS),
    ):
        change = f"UPDATE {table} SET {column} = {column} - :back"
        query(settings, change, back=back_ns)


def _promote(settings: Settings, database: Database, world: World) -> None:
    wanted = (
        (f"{VISION}/step-60000", "vit-l-finetune-best", "best top-1 so far: 88.4", "jonas"),
        (f"{PRETRAIN}/step-40000", "llama-70b-release-candidate", "", "mara"),
    )
    for number, (path, name, note, by) in enumerate(wanted):
        row = world.row(path)
        assert row is not None
        with database.reading() as session:
            seen = members.look(session, row.ino, rules_of(settings))
        assert seen is not None
        with database.writing() as session:
            made = members.record(session, settings.bucket.prefix, name, row.path, seen, note, by)
            if number == 0:
                done = made._replace(
                    state="done", done_ns=clock.now_ns(), begun_ns=made.asked_ns, is_tagged=1
                )
                promotions.change(session, done)
                continue
            promotions.change(session, made._replace(begun_ns=made.asked_ns))
            _half(session, name)


def _export(settings: Settings) -> None:
    database = Database(settings.database_url)
    exports = ExportService(settings, database)
    hosts = ("10.20.9.4 rw", "10.20.0.0/16 ro")
    exports.put(WantedExport("/datasets", b"datasets", hosts, "none"), "mara")
    exports.put(WantedExport("/team/scratch", b"scratch", ("10.20.0.0/16 rw",), "root"), "jonas")
    database.close()


def _half(session: Session, name: str) -> None:
    """Have some of the files of a promotion be copied."""
    for member in promotions.members(session, promotions.UNMADE_FILES, name, most=7):
        session.run(promotions.MADE, the_name=name, the_copy=member.copy)


def _fail_one(settings: Settings, world: World) -> None:
    """Have one upload fail, as a store that refuses a key makes it fail."""
    path = "scratch/a name with spaces and a very long tail that says what was tried.pt"
    ino = world.attr(path).ino
    query(
        settings,
        "INSERT INTO retry (work, ino, key, tries, next_ns, error)"
        " VALUES ('uploads', :ino, :key, 4, :next, :error)",
        ino=ino,
        key=path,
        next=clock.now_ns() + 40 * clock.NS,
        error="503 SlowDown: reduce your request rate",
    )


def _evict_one(settings: Settings, world: World) -> None:
    """Have the bytes of a checkpoint be in the bucket only, but for a half of some files, which a
    job brings back (seedstore.py)."""
    for rank in range(16):
        path = f"{PRETRAIN}/step-37000/__{rank}_0.distcp"
        world.evict(path)
        if rank < 9:
            attr = world.attr(path)
            half = attr.size // BLOCK_BYTES // 2
            query(
                settings,
                "INSERT INTO present_blocks SELECT ino, epoch, :block, :blocks FROM inode"
                " WHERE ino = :ino",
                ino=attr.ino,
                block=BLOCK_BYTES,
                blocks=((1 << half) - 1).to_bytes(-(-half // 8), "little"),
            )


def _begin_uploads(settings: Settings, world: World) -> None:
    """Record the uploads that the drain reports."""
    for rank, _done in UPLOADS:
        path = f"{PRETRAIN}/step-46000/__{rank}_0.distcp"
        query(
            settings,
            "INSERT INTO upload (ino, content_version, key, upload_id, part_bytes, started_ns)"
            " SELECT ino, content_version, :key, 'u', 16777216, :now FROM inode WHERE ino = :ino",
            ino=world.attr(path).ino,
            key=path,
            now=clock.now_ns(),
        )


def _report(settings: Settings) -> None:
    """Write what the processes of a gateway report."""
    now_ns = clock.now_ns()
    me: dict[str, Any] = {"pid": os.getpid(), "time_ns": now_ns}
    ready = {**me, "phase": "ready", "restarts": 0, "last_exit": ""}
    ready["started_ns"] = now_ns - 52 * HOUR_NS
    names = ("ganesha", "drain", "cache", "checkpoints", "recovery", "admin")
    children = dict.fromkeys(names, ready)
    _put(settings, "up.json", {**me, "state": "ready", "children": children})
    uploads = [
        {"key": f"{PRETRAIN}/step-46000/__{rank}_0.distcp", "done_bytes": done * GIB,
         "total_bytes": 32_600_000_000}
        for rank, done in UPLOADS
    ]  # fmt: skip
    _put(
        settings,
        "drain.json",
        {
            **me,
            "state": "running",
            "bucket": {"state": "reachable", "since_ns": now_ns - 52 * HOUR_NS, "error": None},
            "uploads": uploads,
            "bytes_per_second": 284_000_000,
            "failures": [],
            "failing": 1,
            "counters": {"uploads": 4812, "retries": 17},
            "waiting_files": 13,
            "oldest_sealed_ns": now_ns - 9 * MINUTE_NS,
            "restless_files": 0,
            "requests_at_once": 48,
        },
    )
    _put(settings, "cache.json", {**me, "state": "running", "files": 0, "counters": {}})
    copied = {"copied_ns": now_ns - 3 * clock.NS, "waiting": 0, "base_ns": now_ns - 20 * HOUR_NS}
    _put(settings, "recovery.json", {**me, "names": copied})
    _put(
        settings,
        "space.json",
        {
            "level": "room",
            "since_ns": now_ns - 52 * HOUR_NS,
            "headroom_bytes": 1_640_000_000_000,
            "dirty_limit_bytes": 2_000_000_000_000,
            "dirty_bytes": 360_000_000_000,
            "writers": 16,
        },
    )


def _put(settings: Settings, name: str, report: dict[str, Any]) -> None:
    settings.run_dir.mkdir(parents=True, exist_ok=True)
    (settings.run_dir / name).write_text(json.dumps(report))
