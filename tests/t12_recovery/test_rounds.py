"""Seeded rounds of total loss: what was durable comes back, and what was not is named.

SPILLWAY_LOSS_ROUNDS is the number of rounds, half of them on each engine. SPILLWAY_LOSS_SEED
repeats the one whose seed a failure shows.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.db.engine import Database
from gateway.lifecycle.retention import store as policies
from gateway.namespace import fsck
from gateway.namespace.data_files import DataFiles
from gateway.rpc.frames import Op
from tests.support.namespace import Namespace
from tests.support.postgres import PostgresServer
from tests.support.s3server import MotoServer, RcloneServer, Server
from tests.support.sites import MakeSite
from tests.support.t12 import loss, saves
from tests.support.t12.forked import Nursery
from tests.support.t12.losing import ServingSocket
from tests.support.t12.rounds import SECONDS, Loss, Restoring, lose, plan_of, stored
from tests.support.volumes import query
from tests.support.waiting import until

ROUNDS = int(os.environ.get("SPILLWAY_LOSS_ROUNDS", "10")) // 2
SEED = os.environ.get("SPILLWAY_LOSS_SEED")
SEEDS = (2, 4, 6, 7, 8)
"""Those of the first rounds. The others, in ``make slow``, are random."""


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with Nursery(tmp_path_factory.mktemp("nursery") / "output") as made:
        yield made


@pytest.fixture(scope="module")
def servers(rclone: RcloneServer, moto: MotoServer) -> list[Server]:
    return [rclone, moto]


@pytest.mark.parametrize("number", range(1 if SEED else ROUNDS))
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_the_bucket_alone_brings_back_what_was_durable(
    engine: str,
    number: int,
    make_site: MakeSite,
    servers: list[Server],
    nursery: Nursery,
    postgres: PostgresServer,
    tmp_path: Path,
) -> None:
    seed = SEEDS[number] if number < len(SEEDS) else secrets.randbits(32)
    plan = plan_of(int(SEED) if SEED else seed, engine)
    # They are shown when the test fails.
    print(f"SPILLWAY_LOSS_SEED={plan.seed} {plan}")
    url = postgres.create_database() if engine == "postgres" else ""
    site = make_site(servers[plan.seed % 2], database_url=url)
    lost = lose(site, nursery, plan, tmp_path)
    if url:
        postgres.ask(f"DROP DATABASE {url.rpartition('/')[2].partition('?')[0]}")
    to = postgres.create_database() if plan.to_engine == "postgres" else ""
    restoring = Restoring(site, nursery, plan, tmp_path / "new", to)
    said = restoring.restore()
    assert stored(site) == lost.objects
    require_none(broken(restoring))
    url = restoring.settings.database_url
    with closing(Database(url)) as database, database.reading() as session:
        current = policies.current(session)
        assert policies.consent(session, current).versions == frozenset()
    with closing(Namespace(restoring.settings)) as namespace:
        names = loss.restored(restoring.settings, namespace)
        contents = loss.contents_of(lost)
        report = loss.report_of(namespace, said)
        require_none(contents.lies)
        require_none(loss.NamesComparison(lost, names).wrong())
        require_none(loss.promised(lost, names))
        require_none(loss.wrong_report(lost, names, contents, report))
        with restoring.running():
            assert_readable(namespace, restoring, lost, names, contents)
    there = {saves.number_of(one.body) for one in stored(site).values()}
    assert {contents.best[ino] for ino in names.attrs if ino in contents.best} <= there


def require_none(wrong: list[str]) -> None:
    assert not wrong, "\n".join(wrong)


def broken(restoring: Restoring) -> list[str]:
    """Return what fsck finds, but for damaged files, and what the gateway shows beside the files of
    clients: the catalogue makes that again."""
    shown = "SELECT ino FROM inode WHERE reserved = 1 AND ino NOT IN (SELECT ino FROM object)"
    made_again = {f"inode {ino} " for (ino,) in query(restoring.settings, shown)}
    with closing(Database(restoring.settings.database_url)) as database:
        found = fsck.check(database, DataFiles(restoring.settings.files_dir))
    return [
        f"{problem.check}: {problem.detail}"
        for problem in found
        if problem.check != "damaged"
        and not (problem.check == "size" and problem.detail.startswith(tuple(made_again)))
    ]


def assert_readable(
    namespace: Namespace,
    restoring: Restoring,
    lost: Loss,
    names: loss.Restored,
    contents: loss.Contents,
) -> None:
    """Require that each file of which the bucket has something can be read."""
    least = loss.durable_content(lost)
    damaged = {ino for (ino,) in query(restoring.settings, "SELECT ino FROM damage")}
    with ServingSocket(namespace, restoring.settings) as socket:
        wanted = [ino for ino, attr in names.attrs.items() if ino not in damaged and attr.size]
        for ino in wanted:
            socket.want(ino)

        def is_read(ino: int) -> bool:
            assert not socket.of(Op.FAILED, ino), restoring.output.read_text()
            return bool(namespace.getattr(ino).residency)

        for ino in wanted:
            until(lambda ino=ino: is_read(ino), f"the bytes of inode {ino}", SECONDS)  # type: ignore[misc]
        for ino, attr in names.attrs.items():
            if ino in damaged:
                assert ino not in contents.best, f"inode {ino} is damaged"
                continue
            now = namespace.getattr(ino)
            body = namespace.files.path(ino, now.epoch).read_bytes() if attr.size else b""
            number = saves.number_of(body)
            assert number is not None, f"inode {ino} has {body[:12]!r}"
            if ino not in names.promoted.values():
                assert number == contents.best.get(ino, saves.EMPTY), f"inode {ino} is {number}"
                assert number >= least.get(ino, 0), f"inode {ino} is {number}"
