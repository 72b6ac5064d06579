"""What clients remove of a checkpoint stays in the bucket until a newer one is there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gateway import clock
from gateway.checkpoints.follower import Follower
from gateway.cli.main import main
from gateway.control.trash import removable, summary
from gateway.db.engine import Database
from gateway.db.models import TRASH_INO
from gateway.errors import NotFound, TrashRefused
from gateway.manifests.writer import Manifests
from gateway.namespace import fsck
from gateway.trash import expiry
from gateway.trash.expiry import Expiry
from gateway.trash.rows import Entry
from gateway.trash.trash import Trash
from gateway.types import ROOT_CRED, SetAttr
from tests.support import restore
from tests.support.records import record
from tests.support.volumes import query
from tests.t4_drain.site import PREFIX, Site
from tests.t9_checkpoints.trashing import opener
from tests.t9_checkpoints.world import World, follow, rows_of

HOUR_NS = 3600 * clock.NS
RUN, PATH, NEXT = "run", "run/step-1", "run/step-2"
FILES = {f"{PATH}/a.distcp", f"{PATH}/deep/b.distcp", f"{PATH}/.metadata"}
MANIFEST = ".spillway/checkpoints/run/1.json"


class Job:
    """A job that saves checkpoints and removes them, with the duties of the gateway."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.database = Database(site.settings.database_url)
        self.refused: str | None = None
        """Why the law of retention keeps what it is asked about."""
        stop = threading.Event()
        open_door = opener(site.namespace)
        self.follower = Follower(site.settings, self.database, stop)
        self.manifests = Manifests(site.settings, self.database, stop)
        self.trash = Trash(site.settings, self.database, open_door)
        self.duty = Expiry(site.settings, self.database, stop, self._law, open_door)
        self.asked: list[Entry] = []
        """What the law was asked about."""

    def _law(self, entry: Entry) -> str | None:
        self.asked.append(entry)
        return self.refused

    def save(self, path: str, completion: int | None = None, text: str = "") -> None:
        """Save a checkpoint. Parameters: completion, if it is to be brought to the bucket."""
        for name in ("a.distcp", "deep/b.distcp", ".metadata"):
            self.site.write(f"{path}/{name}", f"{path}/{name}{text}".encode())
        if completion is not None:
            self.bring(path, completion)

    def bring(self, path: str, completion: int, grade: str = "listed") -> None:
        """Bring everything to the bucket, and record that a checkpoint is durable."""
        self.site.drain()
        self.look()
        [row] = [one for one in rows_of(self.site.settings) if one.path == path.encode()]
        assert row.state == "durable"
        record(self.site.settings, row.ino, row.run, completion, grade=grade)

    def hold(self, path: str) -> None:
        """Hold a file, so that the drain leaves it alone."""
        row = "INSERT INTO override (ino, hold, set_ns) VALUES (:ino, 1, 1)"
        query(self.site.settings, row, ino=self.site.attr(path).ino)

    def look(self) -> None:
        follow(self.follower)
        self.manifests._refused.clear()
        self.manifests.turn()

    def unlink(self, *names: str, path: str = PATH) -> None:
        for name in names:
            self.site.unlink(f"{path}/{name}")

    def remove(self, path: str = PATH) -> None:
        """Remove a checkpoint as ``rm -rf`` does."""
        self.unlink("a.distcp", "deep/b.distcp", "deep", ".metadata", path=path)
        self.site.namespace.remove(ROOT_CRED, *self.site.split(path))

    def turn(self) -> None:
        """Do what is due, and bring the bucket up to date."""
        self.look()
        self.duty.turn()
        self.look()
        self.site.drain()

    def held(self) -> list[str]:
        return [one.path.decode() for one in self.trash.entries()]

    def bucket(self) -> set[str]:
        return set(self.site.objects())

    def end(self) -> None:
        found = fsck.check(self.database, self.site.namespace.files)
        assert found == []
        self.database.close()


@pytest.fixture
def job(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    monkeypatch.setattr(expiry, "TURN_SECONDS", 0.0)
    made = Job(site)
    yield made
    made.end()


def test_a_job_that_rotates_leaves_a_whole_checkpoint_in_the_bucket(job: Job) -> None:
    job.save(PATH, 1)
    assert job.bucket() == {*FILES, MANIFEST}
    # The new one is on the gateway, and the old one goes.
    job.save(NEXT)
    job.remove()
    with pytest.raises(NotFound):
        job.site.namespace.lookup(job.site.directory(RUN), b"step-1")
    for name in (".metadata", "deep/b.distcp"):
        assert f"{NEXT}/{name}" not in job.bucket()
    assert job.held() == [PATH]
    # Turns, and even the new one's first files, change nothing.
    job.hold(f"{NEXT}/.metadata")
    job.turn()
    assert {*FILES, MANIFEST} <= job.bucket() and f"{NEXT}/a.distcp" in job.bucket()
    [manifest] = restore.manifests(job.site.client, job.site.bucket, PREFIX).values()
    restore.restore(job.site.client, job.site.bucket, manifest, job.site.settings.data_dir / "copy")
    # The new one is in the bucket.
    query(job.site.settings, "DELETE FROM override")
    job.bring(NEXT, 2)
    assert {*FILES, MANIFEST} <= job.bucket()
    job.turn()
    assert job.held() == []
    assert not {*FILES, MANIFEST} & job.bucket()
    assert MANIFEST.replace("1", "2") in job.bucket()
    [(what, author, reason, result)] = query(
        job.site.settings, "SELECT what, author, reason, result FROM action"
    )
    assert (what, author, reason) == ("remove", "a client (uid 0)", "a newer one is durable")
    assert result == "removed for good"


def test_the_law_and_the_order_of_completion_both_decide(job: Job) -> None:
    """A newer step that was complete before, one whose grade is weak, and one that the law of
    retention does not accept let nothing go."""
    job.save(PATH, 5)
    job.remove()
    job.save(NEXT, 4)
    job.turn()
    assert job.held() == [PATH] and job.asked == []
    job.bring(NEXT, 6, grade="marked")
    job.turn()
    assert job.held() == [PATH] and job.asked == []
    job.bring(NEXT, 6)
    job.refused = "no newer checkpoint of its run is durable"
    job.turn()
    assert job.held() == [PATH] and job.bucket() >= FILES
    assert [(one.path, one.run) for one in job.asked] == [(PATH.encode(), RUN.encode())]
    # It is not said that its grace is over.
    assert query(job.site.settings, "SELECT stays FROM trash") == [(None,)]
    job.refused = None
    job.duty._rests.clear()
    job.turn()
    assert job.held() == []


def test_what_names_it_in_the_bucket_goes_first(job: Job) -> None:
    job.save(PATH, 1)
    job.site.write(f"{RUN}/latest", b"step-1")
    job.site.write(f"{RUN}/log.txt", b"1")
    job.site.drain()
    job.remove()
    job.save(NEXT, 2)
    # The trainer has written the new name, and the bucket still has the old one. A log that is
    # always open holds nothing.
    job.site.namespace.open_write(job.site.attr(f"{RUN}/log.txt").ino)
    ino = job.site.write(f"{RUN}/latest", b"step-2")
    job.look()
    job.duty.turn()
    assert job.held() == [PATH]
    assert job.site.objects()[f"{RUN}/latest"] == b"step-1"
    job.site.drain()
    assert job.site.attr(f"{RUN}/latest").ino == ino
    job.turn()
    assert job.held() == []
    job.site.seal(job.site.attr(f"{RUN}/log.txt").ino, b"1")


def test_hours_end_it_by_no_clock(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.save(PATH, 1)
    job.remove()
    job.refused = "asked, although nobody need ask"
    honest_clock, honest_uptime = clock.now_ns, clock.uptime_ns
    monkeypatch.setattr(clock, "now_ns", lambda: honest_clock() + 400 * 24 * HOUR_NS)
    job.duty.turn()
    assert job.held() == [PATH]
    monkeypatch.setattr(clock, "now_ns", honest_clock)
    monkeypatch.setattr(clock, "uptime_ns", lambda: honest_uptime() + 71 * HOUR_NS)
    job.duty.turn()
    assert job.held() == [PATH]
    # The settings of today say for how many hours.
    retention = job.site.settings.retention
    assert retention.rotation_hours == 72.0
    monkeypatch.setattr(clock, "uptime_ns", lambda: honest_uptime() + 72 * HOUR_NS)
    job.turn()
    assert job.held() == [] and not {*FILES, MANIFEST} & job.bucket()
    assert query(job.site.settings, "SELECT reason FROM action") == [("its hours are over",)]


def test_a_person_may_release_it(job: Job) -> None:
    job.save(PATH, 1)
    job.remove()
    [entry] = job.trash.entries()
    job.trash.release(entry, by="me")
    with pytest.raises(TrashRefused, match="is not held"):
        job.trash.release(entry, by="me")
    job.refused = "asked, although nobody need ask"
    job.turn()
    assert job.held() == [] and not {*FILES, MANIFEST} & job.bucket()
    log = query(job.site.settings, "SELECT what, author, reason FROM action ORDER BY id")
    assert log[0] == ("release", "me", "a person released it")
    assert log[1][2] == "me released it"


def test_it_goes_with_its_run(job: Job) -> None:
    job.save(PATH, 1)
    job.save("other/step-1", 2)
    job.remove()
    # Another name of the run's directory is not its removal.
    job.site.rename(RUN, "renamed")
    job.turn()
    assert job.held() == [PATH] and job.bucket() >= FILES
    job.remove("other/step-1")
    job.site.namespace.remove(ROOT_CRED, *job.site.split("renamed"))
    job.refused = "asked, although nobody need ask"
    job.turn()
    assert job.held() == ["other/step-1"] and not FILES & job.bucket()


def test_a_removal_that_was_killed_comes_back_whole(job: Job) -> None:
    job.save(PATH, 1)
    before = {name: job.site.attr(name).ino for name in FILES}
    job.unlink("a.distcp", "deep/b.distcp", "deep")
    job.turn()
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
    job.turn()
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
    job.turn()
    [row] = rows_of(job.site.settings)
    assert (row.path, row.state) == (PATH.encode(), "durable")
    job.turn()
    assert {*FILES, MANIFEST} == job.bucket()
    # To another path, too, and its objects follow.
    record(job.site.settings, row.ino, row.run, 1)
    job.remove()
    [entry] = job.trash.entries()
    assert job.trash.undelete(entry.id, [b"run", b"step-7"], by="me") == b"run/step-7"
    job.turn()
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


def test_a_new_save_at_the_same_path_keeps_the_old_objects(job: Job) -> None:
    """They give way to those of the new files, and the manifest, which would lie, goes."""
    job.save(PATH, 1)
    job.remove()
    job.save(PATH, text="new")
    [entry] = job.trash.entries()
    job.hold(f"{PATH}/.metadata")
    job.site.drain()
    job.look()
    assert MANIFEST not in job.bucket()
    objects = job.site.objects()
    moved = f".spillway/trash/{entry.id}/a.distcp"
    assert objects[moved] == f"{PATH}/a.distcp".encode()
    assert objects[f"{PATH}/a.distcp"] == f"{PATH}/a.distcpnew".encode()
    assert objects[f"{PATH}/.metadata"] == f"{PATH}/.metadata".encode()
    query(job.site.settings, "DELETE FROM override")
    job.bring(PATH, 2)
    job.turn()
    assert job.held() == []
    assert job.bucket() == {*FILES, MANIFEST}
    assert job.site.objects()[f"{PATH}/.metadata"] == f"{PATH}/.metadatanew".encode()


def test_a_single_file_comes_back(job: Job) -> None:
    site = job.site
    site.write("run/model-1.pt", b"one")
    site.drain()
    ino = site.attr("run/model-1.pt").ino
    record(site.settings, ino, b"run/model-", 1)
    site.unlink("run/model-1.pt")
    [entry] = job.trash.entries()
    job.turn()
    assert site.objects() == {"run/model-1.pt": b"one"}
    assert job.trash.undelete(entry.id, by="me") == b"run/model-1.pt"
    assert site.attr("run/model-1.pt").ino == ino and job.held() == []


def test_an_early_removal_takes_nothing_that_is_held(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room that is short evicts it, which loses nothing."""
    monkeypatch.setattr(expiry, "SHORT_SECONDS", 0.0)
    space = replace(job.site.settings.space, reserve_bytes=1 << 60)
    monkeypatch.setattr(job.duty, "_settings", replace(job.site.settings, space=space))
    job.save(PATH, 1)
    job.remove()
    for _ in range(2):
        job.duty.turn()
    assert job.held() == [PATH]


def test_people_see_what_is_held_and_let_it_go(
    configured: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world = configured
    for path in ("run/step-1", "other/step-1", "third/step-1"):
        for name in ("a.distcp", ".metadata"):
            world.write(f"{path}/{name}", b"1")
            world.drain(f"{path}/{name}")
        run = path.partition("/")[0].encode()
        record(world.settings, world.directory(path), run, 1, path=path.encode())
        world.remove(f"{path}/a.distcp")
    file = str(world.settings.source)

    def run(*words: str) -> tuple[int, str]:
        status = main([words[0], "--config", file, *words[1:]])
        said = capsys.readouterr()
        return status, said.out + said.err

    trash = Trash(world.settings, Database(world.settings.database_url), opener(world.namespace))
    one, two, three = [entry.id for entry in trash.entries()]
    status, said = run("trash", "list")
    assert (
        status == 0
        and f"held for a newer checkpoint: let it go: spillway trash release {one}" in said
    )
    assert "a client (uid 0): a client removed it" in said
    assert "3 held for a newer checkpoint" in run("status")[1]
    found = summary(trash)
    assert (found["entries"], found["held"], found["held_bytes"]) == (3, 3, 3)
    # All of the trash is not what may be the last that the bucket has of a run.
    status, said = run("trash", "empty", "--all")
    assert status == 2 and "0 checkpoints" in said
    assert removable(trash, None, 1 << 62) == []
    assert [entry.id for entry in removable(trash, [two], 1 << 62)] == [two]
    status, said = run("trash", "release", "t1", two)
    assert status == 2 and "t1 is not in the trash" in said
    assert run("trash", "release", two) == (
        0,
        f"{two}: released: it leaves the bucket within some minutes\n",
    )
    assert run("trash", "release", two)[0] == 1
    status, said = run("release", "/checkpoints/none")
    assert status == 1 and "nothing there is held" in said
    assert run("release", "/checkpoints/run")[0] == 0
    assert run("release", "/checkpoints/third/step-1", "--json")[0] == 0
    assert summary(trash)["held"] == 0
    trash._database.close()
