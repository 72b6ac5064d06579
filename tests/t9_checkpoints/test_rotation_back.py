"""What clients removed of a checkpoint comes back, whole, and replaces nothing."""

from __future__ import annotations

import pytest

from gateway.common.errors import ControlSocketClosed, NotFound, TrashRefused
from gateway.common.types import SetAttr
from gateway.db.models import TRASH_INO
from gateway.lifecycle.trash import held
from gateway.lifecycle.trash.trash import Trash
from tests.support.checkpoints.trashing import opener
from tests.support.checkpoints.world import rows_of
from tests.support.records import record
from tests.support.t9.rotating import FILES, MANIFEST, PATH, Job
from tests.support.volumes import query


def test_a_removal_that_was_killed_comes_back_whole(job: Job) -> None:
    job.save(PATH, 1)
    before = {name: job.site.attr(name).ino for name in FILES}
    job.unlink("a.distcp", "deep/b.distcp", "deep")
    job.run_once()
    assert {*FILES, MANIFEST} <= job.bucket()
    states = {row.path.decode(): row.files for row in rows_of(job.site.settings)}
    assert states == {PATH: 1}
    [entry] = job.trash.entries()
    assert (entry.files, entry.state) == (2, "kept")
    assert job.trash.undelete(entry.id, by="me") == PATH.encode()
    assert {name: job.site.attr(name).ino for name in FILES} == before
    assert job.held() == [] and query(job.site.settings, "SELECT count(*) FROM trash") == [(0,)]
    names = "SELECT count(*) FROM dirent WHERE parent = :trash"
    assert query(job.site.settings, names, trash=TRASH_INO) == [(0,)]
    # Clients may change it again.
    job.site.write(f"{PATH}/a.distcp", b"newer")
    job.run_once()
    [row] = rows_of(job.site.settings)
    assert (row.path, row.files) == (PATH.encode(), 3)
    assert job.site.objects()[f"{PATH}/a.distcp"] == b"newer"
    log = query(job.site.settings, "SELECT what, author, result FROM action")
    assert log == [("undelete", "me", "back")]


def test_it_comes_back_to_a_path_that_is_gone(job: Job) -> None:
    job.save(PATH, 1)
    job.site.namespace.setattr(job.site.directory(PATH), SetAttr(mode=0o710, uid=5, gid=6))
    job.remove()
    [entry] = job.trash.entries()
    assert job.trash.undelete(entry.id, by="me") == PATH.encode()
    top = job.site.attr(PATH)
    assert (top.mode, top.uid, top.gid, top.reserved) == (0o710, 5, 6, 0)
    job.site.drain()
    job.run_once()
    [row] = rows_of(job.site.settings)
    assert (row.path, row.state) == (PATH.encode(), "durable")
    job.run_once()
    assert {*FILES, MANIFEST} == job.bucket()
    # To another path, too, and its objects follow.
    record(job.site.settings, row.ino, row.run, 1)
    job.remove()
    [entry] = job.trash.entries()
    assert job.trash.undelete(entry.id, [b"run", b"step-7"], by="me") == b"run/step-7"
    job.run_once()
    moved = {name.replace("step-1", "step-7") for name in FILES}
    assert moved <= job.bucket() and not FILES & job.bucket()


def test_nothing_is_replaced_when_it_comes_back(job: Job) -> None:
    job.save(PATH, 1)
    job.remove()
    job.site.write(f"{PATH}/deep/b.distcp", b"of a new save")
    job.site.write(f"{PATH}/mine", b"1")
    [entry] = job.trash.entries()
    with pytest.raises(TrashRefused, match=r"deep/b\.distcp: their names are taken: --to PATH"):
        job.trash.undelete(entry.id, by="me")
    # Not even some of it: that would be neither the old checkpoint nor the new one.
    with pytest.raises(NotFound):
        job.site.attr(f"{PATH}/a.distcp")
    assert job.held() == [PATH]
    with pytest.raises(TrashRefused, match="no directory"):
        job.trash.undelete(entry.id, [b"none", b"step-1"], by="me")
    assert job.trash.undelete(entry.id, [b"run", b"old"], by="me") == b"run/old"
    assert job.site.attr("run/old/.metadata").reserved == 0


def test_a_name_that_is_taken_in_the_last_moment_stays(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.save(PATH, 1)
    job.remove()
    calls: list[int] = []

    def before() -> None:
        calls.append(1)
        if len(calls) == 3:
            job.site.write(f"{PATH}/.metadata", b"of a new save")

    trash = Trash(job.site.settings, job.database, opener(job.site.namespace, before))
    [entry] = trash.entries()
    with pytest.raises(TrashRefused, match=r"stays in the trash: \.metadata: .* a moment ago"):
        trash.undelete(entry.id, by="me")
    assert job.held() == [PATH]
    job.site.unlink(f"{PATH}/.metadata")
    assert job.trash.undelete(entry.id, by="me") == PATH.encode()
    assert job.held() == []


def test_a_single_file_comes_back(job: Job) -> None:
    site = job.site
    site.write("run/model-1.pt", b"one")
    site.drain()
    ino = site.attr("run/model-1.pt").ino
    record(site.settings, ino, b"run/model-", 1)
    site.unlink("run/model-1.pt")
    [entry] = job.trash.entries()
    job.run_once()
    assert site.objects() == {"run/model-1.pt": b"one"}
    assert job.trash.undelete(entry.id, by="me") == b"run/model-1.pt"
    assert site.attr("run/model-1.pt").ino == ino and job.held() == []


def test_what_was_cut_off_is_continued(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """The NFS server goes away after the first file. What is left is still in the trash."""
    monkeypatch.setattr(held, "TOGETHER", 1)
    job.save(PATH, 1)
    before = {name: job.site.attr(name).ino for name in FILES}
    job.remove()
    calls: list[int] = []

    def close() -> None:
        calls.append(1)
        # Two directories are made before the first file comes.
        if len(calls) == 4:
            raise ControlSocketClosed("the server went away")

    trash = Trash(job.site.settings, job.database, opener(job.site.namespace, close))
    [entry] = trash.entries()
    with pytest.raises(ControlSocketClosed):
        trash.undelete(entry.id, by="me")
    back = [name for name in FILES if is_there(job, name)]
    assert len(back) == 1 and job.held() == [PATH]
    job.run_once()
    assert job.held() == [PATH] and job.bucket() >= FILES
    assert job.trash.undelete(entry.id, by="me") == PATH.encode()
    assert {name: job.site.attr(name).ino for name in FILES} == before
    assert job.held() == []
    log = query(job.site.settings, "SELECT result FROM action ORDER BY id")
    assert log == [("interrupted: some of it may be back",), ("back",)]


def is_there(job: Job, path: str) -> bool:
    try:
        job.site.attr(path)
    except NotFound:
        return False
    return True
