"""A copy of a file that is being written is used only if it is of one moment."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path

import pytest

from gateway.drain.send import consistent_copy
from tests.support.drainsite import MIB
from tests.support.waiting import until


def test_a_copy_waits_for_the_write_that_is_under_way(tmp_path: Path) -> None:
    """A write sets the ctime when it begins. Without the wait a long write would be missed."""
    size = 512 * MIB
    path = tmp_path / "f"
    path.write_bytes(b"o")
    os.truncate(path, size)
    body = b"n" * size
    with path.open("r+b", buffering=0) as file:
        before_ns = path.stat().st_ctime_ns
        thread = threading.Thread(target=os.pwrite, args=(file.fileno(), body, 0))
        thread.start()
        while os.fstat(file.fileno()).st_ctime_ns == before_ns:
            time.sleep(0)
        consistent_copy.await_writes(file.fileno())
        last = os.pread(file.fileno(), 1, size - 1)
        thread.join()
    assert last == b"n"


@pytest.mark.parametrize("change", ["write", "touch", "fresh"])
def test_a_copy_is_believed_only_if_nothing_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x" * MIB)
    honest = os.copy_file_range

    def changing(*arguments: int) -> int:
        count = honest(*arguments)
        if change == "write":
            with path.open("r+b") as writer:
                writer.write(b"y")
        elif change == "touch":
            os.utime(path)
        return count

    with path.open("r+b", buffering=0) as source:
        if change == "fresh":
            os.pwrite(source.fileno(), b"y", 0)
        else:
            until(lambda: consistent_copy.is_quiet(path.stat()), "the file is quiet")
        with tempfile.TemporaryFile(dir=tmp_path, buffering=0) as target:
            monkeypatch.setattr(os, "copy_file_range", changing)
            assert consistent_copy.copy(source.fileno(), target.fileno()) is None
        monkeypatch.undo()
        until(lambda: consistent_copy.is_quiet(path.stat()), "the file is quiet")
        with tempfile.TemporaryFile(dir=tmp_path, buffering=0) as target:
            moment = consistent_copy.copy(source.fileno(), target.fileno())
            assert moment is not None
            assert moment.size == MIB
            target.seek(0)
            assert target.read() == path.read_bytes()


def test_holes_stay_holes(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with path.open("wb") as file:
        file.truncate(100 * MIB)
        file.seek(50 * MIB)
        file.write(b"data")
    until(lambda: consistent_copy.is_quiet(path.stat()), "the file is quiet")
    with path.open("rb") as source, tempfile.TemporaryFile(dir=tmp_path, buffering=0) as target:
        assert consistent_copy.copy(source.fileno(), target.fileno()) is not None
        assert os.fstat(target.fileno()).st_size == 100 * MIB
        assert os.fstat(target.fileno()).st_blocks * 512 < MIB
        assert os.pread(target.fileno(), 4, 50 * MIB) == b"data"
