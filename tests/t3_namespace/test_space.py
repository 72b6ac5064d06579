"""The namespace reports dirty bytes, the flow of a write, and the room for a person to read."""

from __future__ import annotations

import dataclasses
import json

import pytest

from gateway.common.types import ROOT_CRED, Sealed, SetAttr
from gateway.config.settings import Settings
from gateway.namespace.server_reports import SPACE_REPORT, Level, Space
from tests.support.namespace import Namespace

ROOT = 2
ANY = SetAttr(mode=0o755)


def space(settings: Settings, namespace: Namespace, **limits: object) -> Space:
    limited = dataclasses.replace(settings.space, **limits)  # type: ignore[arg-type]
    return Space(dataclasses.replace(settings, space=limited), namespace)


def test_dirty_bytes_are_those_of_sealed_files_not_in_the_bucket(
    settings: Settings, namespace: Namespace
) -> None:
    watch = space(settings, namespace, dirty_limit_bytes=1 << 30)
    assert watch.report(0, 0, Level.ROOM, 0) == 0
    attr = namespace.create(ROOT_CRED, ROOT, b"f", ANY)
    assert watch.report(0, 0, Level.ROOM, 0) == 0
    namespace.seal(attr.ino, Sealed(5000, 8192, 1, 1))
    assert watch.report(0, 0, Level.ROOM, 0) == 8192
    namespace.remove(ROOT_CRED, ROOT, b"f")
    namespace.reclaim(attr.ino, attr.epoch)
    namespace.mkdir(ROOT_CRED, ROOT, b"after the reclaim", ANY)
    assert watch.report(0, 0, Level.ROOM, 0) == 0


def test_without_a_limit_nothing_is_summed_up(settings: Settings, namespace: Namespace) -> None:
    attr = namespace.create(ROOT_CRED, ROOT, b"f", ANY)
    namespace.seal(attr.ino, Sealed(5000, 8192, 1, 1))
    assert space(settings, namespace).report(0, 0, Level.ROOM, 0) == 0


def test_a_flow_is_a_client_and_a_directory_of_the_root(
    settings: Settings, namespace: Namespace
) -> None:
    watch = space(settings, namespace, client_weights=("10.0.0.7=4",), directory_weights=("job=5",))
    job = namespace.mkdir(ROOT_CRED, ROOT, b"job", ANY)
    deep = namespace.mkdir(ROOT_CRED, job.ino, b"deep", ANY)
    inside = namespace.create(ROOT_CRED, deep.ino, b"f", ANY)
    outside = namespace.create(ROOT_CRED, ROOT, b"job2", ANY)
    assert watch.flow(inside.ino, "10.0.0.7") == (job.ino, 20)
    assert watch.flow(inside.ino, "10.0.0.8") == (job.ino, 5)
    assert watch.flow(deep.ino, "10.0.0.8") == (job.ino, 5)
    assert watch.flow(outside.ino, "10.0.0.7") == (ROOT, 4)
    # An open file without a name counts for the root.
    namespace.remove(ROOT_CRED, deep.ino, b"f")
    assert watch.flow(inside.ino, "10.0.0.8") == (ROOT, 1)


def test_before_the_first_look_at_the_disk_the_room_is_not_known(
    settings: Settings, namespace: Namespace
) -> None:
    path = settings.run_dir / SPACE_REPORT
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"level": "full", "headroom_bytes": 0}')  # an ended server wrote this
    watch = space(settings, namespace, dirty_limit_bytes=1 << 30)
    watch.report(0, 0, Level.ROOM, 0)
    document = json.loads(path.read_text())
    assert (document["level"], document["headroom_bytes"]) == ("unknown", None)
    watch.report(1 << 20, 0, Level.ROOM, 0)
    document = json.loads(path.read_text())
    assert (document["level"], document["headroom_bytes"]) == ("room", 1 << 20)


def test_levels_are_said_once_and_reported(
    settings: Settings, namespace: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    watch = space(settings, namespace)
    watch.report(100, 0, Level.ROOM, 0)
    assert caplog.messages == []
    for _ in range(3):
        watch.report(50, 0, Level.SLOW, 7)
    document = json.loads((settings.run_dir / SPACE_REPORT).read_text())
    assert (document["level"], document["headroom_bytes"], document["writers"]) == ("slow", 50, 7)
    watch.report(0, 0, Level.FULL, 7)
    watch.report(100, 0, Level.ROOM, 7)
    assert [message.split(":")[0] for message in caplog.messages] == [
        "room gets short",
        "no room is left",
        "there is room again",
    ]
