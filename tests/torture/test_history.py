"""The comparison reports each kind of loss, with logs and trees that are made up for it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.torture.history import Contradiction, History
from tests.torture.verify import Lost, Tree, verify_bucket, verify_names

SAVED = [
    "create w0/x.tmp",
    "ok",
    "write w0/x.tmp 0 32 7 unstable",
    "ok 32 a1",
    "commit w0/x.tmp",
    "ok a1",
    "rename w0/x.tmp w0/x",
    "ok",
]


def units(number: int, count: int, start: int = 0) -> bytes:
    return b"".join(struct.pack("=QQ", number, start + 16 * i) for i in range(count))


def logged(directory: Path, lines: list[str]) -> Path:
    step = 0
    log = directory / "w0.log"
    with log.open("w") as file:
        for line in lines:
            step += line.split()[0] not in ("ok", "lost", "see", "failed", "expired", "back")
            file.write(f"{step} {step}.000000 {line}\n")
    return log


def check(directory: Path, lines: list[str], found: Tree) -> None:
    verify_names([logged(directory, lines)], {"w0": None, **found})


def test_what_was_acknowledged_is_accepted(tmp_path: Path) -> None:
    check(tmp_path, SAVED, {"w0/x": units(7, 2)})


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({}, "w0/x: lost"),
        ({"w0/x.tmp": units(7, 2)}, "w0/x: lost"),
        ({"w0/x": units(7, 1)}, "16 bytes, not 32 to 32"),
        ({"w0/x": units(7, 1) + bytes(16)}, "at 16 are bytes of WRITE 0"),
        ({"w0/x": units(7, 1) + units(7, 1)}, "at 16 are bytes of WRITE -1"),
        ({"w0/x": units(7, 2), "w0/y": b""}, "w0/y: there, and was removed or never made"),
        ({"w0/x": None}, "not what it was"),
        ({"w0/x": units(7, 2), "w9-y": b""}, "no writer made it"),
    ],
)
def test_another_tree_is_a_loss(tmp_path: Path, found: Tree, said: str) -> None:
    with pytest.raises(Lost, match=said):
        check(tmp_path, SAVED, found)


@pytest.mark.parametrize("found", [{"w0/x": units(7, 2)}, {"w0/y": units(7, 2)}])
def test_a_rename_without_an_answer_happened_or_did_not(tmp_path: Path, found: Tree) -> None:
    check(tmp_path, [*SAVED, "rename w0/x w0/y"], found)
    check(tmp_path, [*SAVED, "rename w0/x w0/y", "lost"], found)


@pytest.mark.parametrize("found", [{}, {"w0/x": units(7, 2), "w0/y": units(7, 2)}])
def test_half_a_rename_is_a_loss(tmp_path: Path, found: Tree) -> None:
    with pytest.raises(Lost):
        check(tmp_path, [*SAVED, "rename w0/x w0/y", "lost"], found)


def test_what_was_seen_of_a_rename_holds(tmp_path: Path) -> None:
    lines = [*SAVED, "rename w0/x w0/y", "lost", "see w0/x absent", "see w0/y file 32", "back"]
    check(tmp_path, lines, {"w0/y": units(7, 2)})
    with pytest.raises(Lost):
        check(tmp_path, lines, {"w0/x": units(7, 2)})


@pytest.mark.parametrize(
    "found", [units(7, 2), units(8, 1) + units(7, 1, 16), units(8, 2), units(8, 3)]
)
def test_an_unsynced_write_may_be_there_in_part(tmp_path: Path, found: bytes) -> None:
    for end in (["ok 48 a1"], ["lost"]):
        lines = [*SAVED, "write w0/x 0 48 8 unstable", *end]
        check(tmp_path, lines, {"w0/x": found})


def test_a_commit_of_another_start_of_the_server_promises_nothing(tmp_path: Path) -> None:
    lines = [*SAVED, "write w0/x 0 32 8 unstable", "ok 32 a1", "commit w0/x"]
    check(tmp_path, [*lines, "ok a2"], {"w0/x": units(7, 2)})
    with pytest.raises(Lost, match="WRITE 7, not of \\[8\\]"):
        check(tmp_path, [*lines, "ok a1"], {"w0/x": units(7, 2)})


def test_a_stable_write_and_a_truncation_are_promises(tmp_path: Path) -> None:
    lines = [*SAVED, "write w0/x 16 32 8 stable", "ok 32 a1"]
    check(tmp_path, lines, {"w0/x": units(7, 1) + units(8, 2, 16)})
    with pytest.raises(Lost):
        check(tmp_path, lines, {"w0/x": units(7, 2)})
    lines += ["truncate w0/x 16", "ok"]
    check(tmp_path, lines, {"w0/x": units(7, 1)})
    with pytest.raises(Lost):
        check(tmp_path, lines, {"w0/x": units(7, 1) + units(8, 2, 16)})


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["open w0/x", "failed 2"], "NFS4ERR 2"),
        (["open w0/x", "ok", "stat w0/x", "ok 0"], "0 bytes, not 32"),
        (["read w0/x", "ok 32 0*2"], "bytes of WRITE 0"),
        (["remove w0/x", "lost", "see w0/x file 0"], "0 bytes, not 32"),
        (
            ["remove w0/x", "ok", "create w0/y", "lost", "see w0/x absent", "open w0/x", "ok"],
            "w0/x",
        ),
        (["close w0/x", "lost", "see w0/x absent"], "w0/x is lost"),
    ],
)
def test_a_loss_that_a_writer_saw_is_told_with_its_lines(
    tmp_path: Path, lines: list[str], said: str
) -> None:
    with pytest.raises(Contradiction, match=said) as error:
        History(logged(tmp_path, [*SAVED, *lines]))
    assert "rename w0/x.tmp w0/x" in str(error.value)


def test_a_renamed_directory_takes_its_files_along(tmp_path: Path) -> None:
    lines = ["mkdir w0/d", "ok", "create w0/d/x", "ok", "rename w0/d w0/e", "ok"]
    check(tmp_path, lines, {"w0/e": None, "w0/e/x": b""})
    with pytest.raises(Lost):
        check(tmp_path, lines, {"w0/d": None, "w0/e": None, "w0/e/x": b""})


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        ({}, "x: not in the bucket"),
        ({"x": b"12", "y": b""}, "y: in the bucket, and no file"),
        ({"x": b"34"}, "x: other bytes"),
        ({"x": b"12", "z.tmp": b"3"}, "z.tmp: in the bucket"),
    ],
)
def test_a_bucket_that_differs_is_told(objects: dict[str, bytes], said: str) -> None:
    with pytest.raises(Lost, match=said):
        verify_bucket({"x": b"12", "z.tmp": b"3", "d": None}, objects)
