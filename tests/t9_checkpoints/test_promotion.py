"""Promotions: copies inside a real store that stay, whatever becomes of the original."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest

from gateway.common.errors import ControlSocketClosed, UserError
from gateway.config import settings as settings_module
from gateway.db.models import PROMOTED_INO
from gateway.lifecycle.promotion import store, task
from gateway.lifecycle.promotion.store import PromotionState
from gateway.rpc.frames import Op
from gateway.rpc.frames import RpcRequest as Asked
from tests.support.drainsite import Site
from tests.support.s3proxy import Act, Request, S3Proxy
from tests.support.s3server import MotoServer, RcloneServer, Server
from tests.support.t9.promoting import Promoting, context, save, work
from tests.support.volumes import query
from tests.support.waiting import until

REGULAR, LINK, DIRECTORY = 1, 4, 7
ABSENT, RESIDENT = 0, 2
numbers = count(1)


@pytest.fixture(scope="module", params=[RcloneServer, MotoServer])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    with request.param(tmp_path_factory.mktemp("s3") / "store") as made:
        yield made


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing arrive later than a second and a half after it was given up."""
    monkeypatch.setattr(settings_module, "LATE_FACTOR", 0.1)


@pytest.fixture
def site(server: Server, tmp_path: Path) -> Iterator[Promoting]:
    with S3Proxy(server.port) as proxy:
        made = Promoting(tmp_path, server, f"promotions-{next(numbers)}", proxy)
        yield made
        made.close()


def test_a_promotion_outlives_its_original(site: Promoting) -> None:
    data = save(site)
    site.ask("job/step-5", "best")
    site.ask("job/step-5/.metadata", "one file")
    site.proxy.forget()
    site.settle()
    done = site.promotion("best")
    assert done is not None
    assert (done.state, done.files, done.size) == (PromotionState.DONE, 4, 201_003)
    kept = site.etags()["job/step-5/__0_0.distcp"]
    copies = {request.key: request for request in site.proxy.operations("COPY")}
    asked = copies["team/run/.spillway/promoted/best/__0_0.distcp"]
    assert asked.headers["x-amz-copy-source-if-match"] == f'"{kept}"'
    site.require_whole()
    assert site.tree() == {
        "best": (DIRECTORY, 0o755, 0, RESIDENT, 1),
        "best/__0_0.distcp": (REGULAR, 0o640, 200_000, ABSENT, 1),
        "best/.metadata": (REGULAR, 0o640, 3, ABSENT, 1),
        "best/empty": (REGULAR, 0o640, 0, RESIDENT, 1),
        "best/deep": (DIRECTORY, 0o755, 0, RESIDENT, 1),
        "best/deep/er": (DIRECTORY, 0o755, 0, RESIDENT, 1),
        "best/deep/er/__1_0.distcp": (REGULAR, 0o640, 1000, ABSENT, 1),
        "best/nothing": (DIRECTORY, 0o755, 0, RESIDENT, 1),
        "best/link": (LINK, 0o777, 7, RESIDENT, 1),
        "one file": (REGULAR, 0o640, 3, ABSENT, 1),
    }
    copies_of = {f"best/{path}": text for path, text in data.items()} | {"one file": b"all"}
    assert site.copies() == copies_of
    tags = is_tagged(site, "best/.metadata")
    assert (bool(done.is_tagged), tags) == ((True, True) if keeps_tags(site) else (False, False))
    # What the copy has is compared and deleted as the objects of any file are.
    for path in data:
        site.unlink(f"job/step-5/{path}")
    site.unlink("job/step-5/link")
    site.drain()
    assert site.copies() == copies_of
    wanted = {*copies_of, "best.json", "one file.json"}
    assert set(site.objects()) == {f".spillway/promoted/{path}" for path in wanted}
    site.demote("best")
    site.demote("one file")
    site.settle()
    site.require_whole()
    assert site.promotion("best") is None
    assert site.tree() == {}
    site.drain()
    assert site.objects() == {}
    assert site.is_clean()


@pytest.mark.parametrize("server", [MotoServer], indirect=True)
def test_a_copy_that_is_demoted_when_it_appears_goes_again(site: Promoting) -> None:
    site.write("job/step-5/.metadata", b"all")
    site.drain()
    site.ask("job/step-5", "best")
    # The first request over the control socket shows the copy.
    site.on_control = lambda _requests: site.demote("best")
    site.settle()
    assert site.promotion("best") is None
    assert site.tree() == {}
    site.require_whole()


@pytest.mark.parametrize("server", [MotoServer], indirect=True)
def test_a_copy_that_a_late_rename_shows_during_its_demotion_goes_too(site: Promoting) -> None:
    site.write("job/step-5/.metadata", b"all")
    site.drain()
    promoted = site.ask("job/step-5", "best")
    promoter = site.promoter()
    site.on_control = lambda _requests: (_ for _ in ()).throw(
        ControlSocketClosed("the answer is lost")
    )
    promoter.run_once()
    site.demote("best")
    arrived: list[int] = []

    def late(requests: Sequence[Asked]) -> None:
        """Carry out the rename of before, as the server does."""
        if requests and requests[0].op is Op.REMOVE and not arrived:
            arrived.append(1)
            move = {"top": promoted.top, "new": PROMOTED_INO}
            set_name = (
                "UPDATE dirent SET parent = :new, name = CAST('best' AS BLOB) WHERE ino = :top"
            )
            query(site.settings, set_name, **move)
            query(site.settings, "UPDATE inode SET parent = :new WHERE ino = :top", **move)

    site.on_control = late
    site.settle(promoter)
    assert arrived
    assert site.promotion("best") is None
    assert site.tree() == {}


def keeps_tags(site: Site) -> bool:
    return isinstance(site.server, MotoServer)


def is_tagged(site: Promoting, path: str) -> bool:
    if not keeps_tags(site):
        return False
    key = f"team/run/.spillway/promoted/{path}"
    tags = site.client.get_object_tagging(Bucket=site.bucket, Key=key)["TagSet"]
    return tags == [{"Key": "spillway", "Value": "promoted"}]


def rewrite(site: Promoting, path: str) -> None:
    site.write(f"job/step-5/{path}", b"ALL")


def remove(site: Promoting, path: str) -> None:
    site.unlink(f"job/step-5/{path}")


def replace(site: Promoting, path: str) -> None:
    """Put another object there, as another program does."""
    key = f"team/run/job/step-5/{path}"
    site.client.put_object(Bucket=site.bucket, Key=key, Body=b"foreign")


@pytest.mark.parametrize(
    ("server", "change", "path"),
    [
        # Its own copy is made, and its original has a new version of the same size by then.
        (RcloneServer, rewrite, ".metadata"),
        (MotoServer, remove, "empty"),
        (MotoServer, replace, "empty"),
    ],
    indirect=["server"],
)
def test_a_member_that_changes_fails_it(
    site: Promoting,
    change: Callable[[Promoting, str], None],
    path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task, "BATCH", 1)
    data = save(site)
    site.ask("job/step-5", "best")
    seen: list[dict[str, tuple[int, ...]]] = []

    def when_copied(request: Request) -> None:
        if request.operation == "COPY" and request.key.endswith("best/.metadata"):
            seen.append(site.tree())
            change(site, path)

    site.proxy.on_applied = when_copied
    promoter = site.promoter()
    site.settle(promoter)
    assert seen == [{}]
    assert site.failed("best").startswith(f"job/step-5/{path}: ")
    assert site.tree() == {}
    assert site.described() == set()
    site.proxy.on_applied = None
    site.demote("best")
    site.settle(promoter)
    site.require_whole()
    # It can be tried again, and nothing of the first try is taken for the second.
    site.write(f"job/step-5/{path}", data[path])

    def is_asked() -> bool:
        # The deletion of the file before is not certain at once.
        site.drain()
        try:
            site.ask("job/step-5", "best")
        except UserError:
            return False
        return True

    until(is_asked, "all of it to be in the bucket")
    assert site.copies() == {}
    site.settle()
    assert site.copies() == {f"best/{path}": text for path, text in data.items()}


@pytest.mark.parametrize("server", [MotoServer], indirect=True)
def test_the_store_refuses_what_was_replaced_a_moment_ago(site: Promoting) -> None:
    save(site)
    site.ask("job/step-5", "best")
    key = "team/run/job/step-5/.metadata"
    replaced: list[str] = []

    def is_refused(request: Request) -> bool:
        """Answer as AWS does: neither rclone nor moto heeds the condition of a copy."""
        if request.operation != "COPY" or not request.key.endswith("/.metadata"):
            return False
        if not replaced:
            # It has the size that was recorded.
            answer = site.client.put_object(Bucket=site.bucket, Key=key, Body=b"ALL")
            replaced.append(answer["ETag"])
        return request.headers.get("x-amz-copy-source-if-match") not in (None, replaced[0])

    def is_lost(request: Request) -> bool:
        return request.operation == "COPY" and request.key.endswith("/__0_0.distcp")

    site.proxy.inject(is_refused, Act.FAIL, math.inf, status=412, code="PreconditionFailed")
    site.proxy.inject(is_lost, Act.DROP_ANSWER, math.inf)
    promoter = site.promoter()
    site.settle(promoter)
    assert "PreconditionFailed" in site.failed("best")
    site.demote("best")
    site.settle(promoter)
    # The store may yet make the copy whose answer is lost.
    assert query(site.settings, "SELECT key FROM indeterminate_write")
    copies = [
        request for request in site.proxy.operations("COPY") if request.key.endswith("/.metadata")
    ]
    assert {request.status for request in copies} == {412}
    assert site.tree() == {}


FAILPOINTS = [
    "drain.copy_object.before.1",
    "drain.copy_object.after.3",
    *(f"drain.commit.after.{at}" for at in (1, 6)),
    "drain.commit.before.7",
    # The first PUT asks whether the store keeps tags, the second one is the manifest.
    *(f"drain.put_object.{when}.2" for when in ("before", "after")),
    "drain.commit.after.8",
    "rename.1",
    *(f"drain.commit.{when}.9" for when in ("before", "after")),
]
"""The commit 8 records the manifest, and the last one follows the rename that shows the copy."""


@pytest.mark.parametrize("server", [MotoServer], indirect=True)
def test_a_kill_anywhere_is_followed_by_the_rest(
    site: Promoting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings_module, "LATE_FACTOR", 0.001)
    data = save(site)
    whole = {*data, "", "deep", "deep/er", "nothing", "link"}
    states: dict[str, str] = {}
    for number, failpoint in enumerate(FAILPOINTS):
        site.ask("job/step-5", f"best-{number}")
        site.namespace.close()
        process = context.Process(target=work, args=(site.settings, failpoint))
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL, failpoint
        site.namespace = type(site.namespace)(site.settings)
        shown = {
            path.partition("/")[2] for path in site.tree() if path.startswith(f"best-{number}")
        }
        assert shown in (set(), whole), failpoint
        row = site.promotion(f"best-{number}")
        assert row is not None
        states[failpoint] = f"{row.state}, {'shown' if shown else 'hidden'}"
        # The manifest is the last object of the copy.
        is_described = f"best-{number}" in site.described()
        assert is_described or not shown, failpoint
        assert is_described == (number >= FAILPOINTS.index("drain.put_object.after.2")), failpoint
        if number % 2:
            site.demote(f"best-{number}")
        site.settle()
    assert states["drain.commit.before.9"] == "copying, shown"
    assert states["drain.commit.after.9"] == "done, shown"
    assert set(list(states.values())[:-2]) == {"copying, hidden"}
    site.require_whole()
    site.drain()
    kept = range(0, len(FAILPOINTS), 2)
    expected = {f"best-{one}/{path}": text for one in kept for path, text in data.items()}
    assert site.copies() == expected
    files = {path for path, facts in site.tree().items() if facts[0] == REGULAR}
    assert files == set(expected)


@pytest.mark.parametrize("server", [MotoServer], indirect=True)
def test_a_late_copy_is_looked_at_before_anything_is_shown(
    site: Promoting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings_module, "LATE_FACTOR", 3)
    save(site)
    site.ask("job/step-5", "best")
    site.values["bucket"]["read_timeout_seconds"] = 1.0
    site.configure()
    late = site.proxy.inject(lambda request: request.operation == "COPY", Act.HOLD, 1)
    promoter = site.promoter()
    promoter.run_once()
    late.wait()
    waiting = site.promotion("best")
    assert waiting is not None
    assert (waiting.state, waiting.begun_ns is not None) == (PromotionState.COPYING, True)
    promoter.run_once()
    assert site.tree() == {}
    # It arrives after the second look. A store that encrypts gives the object another ETag then,
    # which other bytes do here.
    late.arrive()
    path = ".spillway/promoted/best/.metadata"
    described = site.metadata(path)
    key = f"team/run/{path}"
    site.client.put_object(Bucket=site.bucket, Key=key, Body=b"ALL", Metadata=described)
    site.settle(promoter)
    assert {path.partition("/")[0] for path in site.tree()} == {"best"}
    recorded = query(site.settings, "SELECT key, etag FROM object WHERE key LIKE '%promoted%'")
    assert {key.removeprefix("team/run/"): etag for key, etag in recorded} == {
        key: etag for key, etag in site.etags().items() if "promoted/best/" in key
    }


def test_a_copy_whose_answer_comes_too_late_is_made_once(site: Promoting) -> None:
    save(site)
    site.ask("job/step-5", "best")
    site.values["bucket"]["read_timeout_seconds"] = 1.0
    site.configure()
    site.proxy.forget()
    slow = site.proxy.inject(lambda request: request.operation == "COPY", Act.HOLD_ANSWER, 1)
    promoter = site.promoter()
    promoter.run_once()
    slow.wait()
    site.settle(promoter)
    copied = [request.key for request in site.proxy.operations("COPY")]
    assert len(copied) == len(set(copied))
    assert {path.partition("/")[0] for path in site.tree()} == {"best"}


@pytest.mark.parametrize("server", [MotoServer], indirect=True)
def test_a_bucket_that_is_away_is_waited_for(site: Promoting) -> None:
    save(site)
    site.ask("job/step-5", "best")
    away = site.proxy.inject(lambda _request: True, Act.FAIL, math.inf)
    promoter = site.promoter()
    assert promoter.run_once() == task.RETRY_SECONDS
    waiting = site.promotion("best")
    assert waiting is not None
    assert waiting.state == PromotionState.COPYING and "it may recover" in str(waiting.reason)
    away.times = 0
    site.settle(promoter)
    assert {path.partition("/")[0] for path in site.tree()} == {"best"}


@pytest.mark.parametrize("server", [MotoServer], indirect=True)
def test_another_object_at_the_key_stays(site: Promoting) -> None:
    data = save(site)
    key = "team/run/.spillway/promoted/best/.metadata"
    site.client.put_object(Bucket=site.bucket, Key=key, Body=b"of a newer database")
    site.ask("job/step-5", "best")
    promoter = site.promoter()
    site.settle(promoter)
    assert "an object that this gateway did not put there" in site.failed("best")
    site.demote("best")
    site.settle(promoter)
    site.drain()
    assert site.copies() == {"best/.metadata": b"of a newer database"}
    # A deletion that is still to come would take what is copied to its key before.
    site.client.delete_object(Bucket=site.bucket, Key=key)
    site.ask("job/step-5", "best")
    site.settle()
    site.demote("best")
    site.settle()
    site.ask("job/step-5", "best")
    promoter = site.promoter()
    promoter.run_once()
    waiting = site.promotion("best")
    assert waiting is not None
    assert (waiting.begun_ns, waiting.reason) == (
        None,
        "the drain has yet to delete what had this name before",
    )
    site.drain()
    site.settle(promoter)
    assert site.copies() == {f"best/{path}": text for path, text in data.items()}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "is empty"),
        (".hidden", "begins with a dot"),
        ("a/b", "has a slash"),
        ("a\nb", "cannot be shown"),
        ("best.json", "of manifests"),
        ("x" * 251, "longer than 250"),
        ("best.tmp", "incomplete_patterns"),
        ("\udcff", "must be UTF-8"),
    ],
)
def test_names(name: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        store.checked(name, ["*.tmp"])
    assert store.checked("größte 70B", ["*.tmp"]) == "größte 70B"
