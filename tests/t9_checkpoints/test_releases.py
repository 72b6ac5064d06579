"""Promotions under a legal hold, with tags of their own, and at keys that a team publishes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from gateway.common.errors import UserError
from gateway.config import settings as settings_module
from gateway.lifecycle.promotion.store import PromotionOptions, PromotionState, options_of
from tests.support.s3proxy import S3Proxy
from tests.support.s3server import MotoServer, RcloneServer, Server
from tests.support.t9.promoting import Promoting, context, held, lock, save, work

numbers = count(1)
ALL = PromotionOptions(True, (("stage", "prod"), ("owner", "größe/7B")), "models/v1")
MANIFEST = "team/run/.spillway/promoted/best.json"


@pytest.fixture(scope="module", params=[MotoServer])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    with request.param(tmp_path_factory.mktemp("s3") / "store") as made:
        yield made


@pytest.fixture
def site(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Promoting]:
    monkeypatch.setattr(settings_module, "LATE_FACTOR", 0.001)
    with S3Proxy(server.port) as proxy:
        made = Promoting(tmp_path, server, f"releases-{next(numbers)}", proxy)
        yield made
        made.close()


def keys(site: Promoting) -> set[str]:
    return {key for key in site.objects() if not key.startswith("job/")}


@pytest.mark.parametrize("failpoint", ["", "drain.put_object_legal_hold.before.2"])
def test_a_release_is_held_until_a_person_names_the_hold(site: Promoting, failpoint: str) -> None:
    lock(site)
    data = save(site)
    site.ask("job/step-5", "best", ALL)
    if failpoint:
        site.namespace.close()
        process = context.Process(target=work, args=(site.settings, failpoint))
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
        site.namespace = type(site.namespace)(site.settings)
    site.settle()
    done = site.promotion("best")
    assert done is not None
    assert (done.state, done.is_tagged) == (PromotionState.DONE, 1)
    released = {f"models/v1/best/{path}" for path in data}
    assert keys(site) == {*(f"!{key}" for key in released), ".spillway/promoted/best.json"}
    assert {key for key, is_held in held(site).items() if is_held} == {*released, MANIFEST}
    for key in (*released, MANIFEST):
        tags = site.client.get_object_tagging(Bucket=site.bucket, Key=key)["TagSet"]
        wanted = {"spillway": "promoted", "stage": "prod", "owner": "größe/7B"}
        assert {tag["Key"]: tag["Value"] for tag in tags} == wanted
    # The drain leaves it where it is, and the manifest names it there.
    site.drain()
    site.require_whole()
    assert {f"!{key}" for key in released} < keys(site)
    assert site.demoted_without_release("best").state == PromotionState.DONE
    assert {f"!{key}" for key in released} < keys(site)
    site.end("best", releases=True)
    site.settle()
    site.drain()
    assert site.promotion("best") is None
    assert keys(site) == set()
    assert not any(held(site).values())
    site.require_whole()


def test_a_release_replaces_nothing(site: Promoting) -> None:
    data = save(site)
    key = "models/v1/best/.metadata"
    site.client.put_object(Bucket=site.bucket, Key=key, Body=b"of another team")
    site.ask("job/step-5", "best", ALL._replace(legal_hold=False))
    site.settle()
    assert key in site.failed("best")
    site.demote("best")
    site.settle()
    site.drain()
    assert {name: site.objects()[name] for name in keys(site)} == {f"!{key}": b"of another team"}
    # A file by itself has the key of the name.
    site.ask("job/step-5/.metadata", "one.bin", PromotionOptions(key_prefix="models"))
    site.settle()
    site.drain()
    assert site.objects()["!models/one.bin"] == data[".metadata"]
    site.require_whole()


@pytest.mark.parametrize(
    ("server", "options", "why"),
    [
        (MotoServer, PromotionOptions(legal_hold=True), "has no Object Lock"),
        (RcloneServer, PromotionOptions(tags=(("stage", "prod"),)), "keeps no tags"),
    ],
    indirect=["server"],
)
def test_a_bucket_that_cannot_says_so_before_anything_is_done(
    site: Promoting, options: PromotionOptions, why: str
) -> None:
    save(site)
    site.ask("job/step-5", "best", options)
    site.proxy.forget()
    site.settle()
    failed = site.promotion("best")
    assert failed is not None
    assert (failed.state, why in str(failed.reason)) == (PromotionState.FAILED, True)
    assert site.proxy.operations("COPY") == []


@pytest.mark.parametrize(
    ("prefix", "tags", "to", "why"),
    [
        ("p", ["stage"], None, "write key=value"),
        ("p", ["=x"], None, "the key is empty"),
        ("p", ["spillway=x"], None, "this key is ours"),
        ("p", ["AWS:x=y"], None, "belong to AWS"),
        ("p", ["a=b", "a=c"], None, "twice"),
        ("p", ["a=b*"], None, "S3 takes letters"),
        ("p", [f"a={'x' * 257}"], None, "256 of the value"),
        ("p", [f"k{at}=v" for at in range(10)], None, "at most 10 tags"),
        ("p", [], "", "the beginning of keys"),
        ("p", [], "a//b", "the beginning of keys"),
        ("p", [], "a/../b", "the beginning of keys"),
        ("", [], "models", "set bucket.prefix first"),
        ("team/run", [], "team/run/models", "outside of team/run/"),
        ("team/run", [], "team", "outside of team/run/"),
    ],
)
def test_options_that_are_refused(prefix: str, tags: list[str], to: str | None, why: str) -> None:
    with pytest.raises(UserError, match=why):
        options_of(prefix, False, tags, to)
    options = options_of("team/run", True, ["a=b=c", "e="], "/team/running/")
    assert options == PromotionOptions(True, (("a", "b=c"), ("e", "")), "team/running")
