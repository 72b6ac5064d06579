"""The rows of promotions and pins, on both engines, and the commands that write them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway.catalogue.store import rules_of
from gateway.cli.main import main
from gateway.cli.promotions import line
from gateway.common.errors import UserError
from gateway.common.types import GATEWAY_CRED, ROOT_CRED, InodeKind, SetAttr
from gateway.config.settings import Settings
from gateway.db.compiled import Session, rows_of
from gateway.db.engine import Database
from gateway.db.models import PROMOTED_INO, ROOT_INO, TRASH_INO
from gateway.drain.statements import INDETERMINATE_DELETE, INDETERMINATE_INSERT
from gateway.lifecycle.promotion import copies, members, store
from gateway.lifecycle.promotion.copier import OBJECTS, SOURCES, OriginalObject
from gateway.lifecycle.promotion.store import PromotionRow, PromotionState, ProtectedInodes
from gateway.namespace import lookup
from gateway.service import promotions
from tests.support import trash
from tests.support.checkpoints.layouts import safetensors
from tests.support.checkpoints.world import World, follow
from tests.support.volumes import query, status_of

SAVED = ("job/step-5/__0_0.distcp", "job/step-5/deep/__1_0.distcp", "job/step-5/.metadata")


def within(settings: Settings, function: Callable[[Session], Any]) -> Any:
    """Call a function in a write transaction."""
    database = Database(settings.database_url)
    try:
        with database.reader() as connection, database.transaction(connection):
            return function(Session(connection, database.dialect))
    finally:
        database.close()


def save(world: World, *, drains: bool = True) -> None:
    for path in SAVED:
        world.write(path, path.encode())
        if drains:
            world.drain(path)


def test_a_copy_is_made_of_rows(world: World) -> None:
    save(world)
    follow(world.follower())
    source = world.attr("job/step-5").ino
    world.namespace.setxattr(ROOT_CRED, world.attr(SAVED[0]).ino, b"rank", b"0")

    def ask(session: Session) -> PromotionRow:
        seen = members.look(session, source, rules_of(world.settings))
        assert seen is not None and seen.checkpoint is not None
        assert (seen.checkpoint.state, seen.checkpoint.step) == ("durable", 5)
        assert (len(seen.files), seen.left, seen.special) == (3, [], None)
        return members.record(session, "team", "best", b"job/step-5", seen, "good", "me")

    asked = within(world.settings, ask)
    assert asked.run == b"job"
    found = within(world.settings, store.protected)
    assert found == ProtectedInodes(frozenset({source}), frozenset({b"job/step-5"}))

    def build_all(session: Session) -> None:
        names = store.members(session, store.UNMADE_NAMES, "best", most=9)
        assert copies.make(session, asked, names) is None
        files = store.members(session, store.UNMADE_FILES, "best", most=9)
        # An object that is not the one that was copied makes no file.
        assert copies.make_files(session, asked, [(files[0], "other", "new")]) == [files[0]]
        assert copies.make_files(session, asked, [(file, "e", "new") for file in files]) == []
        assert store.counts(session, "best") == (3, 3)
        done = asked._replace(state=PromotionState.DONE.value)
        store.change(session, done)
        assert store.pending(session) == [done]
        require_described(session, asked)
        store.change(session, done._replace(manifest_etag="m"))

    within(world.settings, require_unmade)
    assert within(world.settings, store.pending) == [asked]
    within(world.settings, build_all)
    within(world.settings, require_made)
    staged = b"promotion-%d" % asked.top
    world.namespace.rename(GATEWAY_CRED, TRASH_INO, staged, PROMOTED_INO, b"best")
    rows = query(
        world.settings,
        "SELECT o.key, o.etag, o.checksum, o.size, length(b.crcs), i.residency, i.reserved"
        " FROM object o JOIN inode i ON i.ino = o.ino JOIN block_digest b ON b.ino = o.ino"
        " WHERE i.reserved = 1 ORDER BY o.key",
    )
    assert rows == [
        (f"team/.spillway/promoted/best/{path[11:]}", "new", "md5:c", len(path), 8, 0, 1)
        for path in sorted(SAVED)
    ]
    copied = world.namespace.lookup(
        world.namespace.lookup(PROMOTED_INO, b"best").ino, SAVED[0][11:].encode()
    )
    assert world.namespace.getxattr(ROOT_CRED, copied.ino, b"rank") == b"0"
    # A rename of the original is no change of it, and a write is.
    world.rename("job", "kept")
    follow(world.follower())
    kept = within(world.settings, store.protected)
    assert kept == ProtectedInodes(frozenset({source}), frozenset())
    world.write("kept/step-5/.metadata", b"again")
    follow(world.follower())
    assert within(world.settings, store.protected) == ProtectedInodes(frozenset(), frozenset())


def require_described(session: Session, of: PromotionRow) -> None:
    """Require that the manifest of a copy names all of it."""
    document = json.loads(b"".join(copies.text(session, of)))
    below = [path.removeprefix("job/step-5/") for path in SAVED]
    assert [member["path"] for member in document["members"]] == sorted(["deep", *below])
    # A request that was given up may yet replace one of the objects.
    key = f"team/.spillway/promoted/best/{below[0]}"
    session.run(INDETERMINATE_INSERT, key=key, ino=0, noted_ns=1, check_after_ns=1)
    with pytest.raises(UserError, match="may not have __0_0"):
        list(copies.text(session, of))
    session.run(INDETERMINATE_DELETE, the_key=key)


def require_unmade(session: Session) -> None:
    """Require that nothing of a copy is made, and that all originals are what is promoted."""
    files = store.members(session, store.UNMADE_FILES, "best", most=9)
    sources = session.all(SOURCES, inos=rows_of([(file.ino,) for file in files]))
    assert {OriginalObject(*row).key for row in sources} == set(SAVED)
    assert all(OriginalObject(*row).etag == "e" for row in sources)
    assert not store.is_blocked(session, "team", "best")


def require_made(session: Session) -> None:
    """Require that all of a copy is made, as the steps after that find it."""
    made = store.members(session, store.LAST_MADE, "best", before=1 << 62, most=9)
    assert [member.copy for member in made] == sorted(
        (member.copy for member in made), reverse=True
    )
    assert made[-1].path == b""
    rows = session.all(OBJECTS, name="best", after=0, most=9)
    assert [row[3] for row in rows] == ["new"] * 3
    session.run(copies.NEW_ETAG, the_ino=rows[0][0], new_etag="newer")
    assert session.all(OBJECTS, name="best", after=0, most=1)[0][3] == "newer"
    session.run(copies.NEW_ETAG, the_ino=rows[0][0], new_etag="new")
    assert store.pending(session) == []


def test_pins_follow_inodes(world: World) -> None:
    save(world)
    tree, file = world.attr("job/step-5").ino, world.attr(SAVED[0]).ino
    other = world.write("other/f", b"1")

    def covered(session: Session) -> list[bool]:
        pin_lookup = lookup.PinLookup(session)
        return [pin_lookup.cover(ino) for ino in (file, other, tree, ROOT_INO)]

    assert within(world.settings, covered) == [False] * 4
    assert within(world.settings, lambda to: lookup.add(to, lookup.PinRow(tree, "n", "me", 1)))
    assert within(world.settings, lambda to: lookup.add(to, lookup.PinRow(tree, "m", "me", 2)))
    assert not within(
        world.settings, lambda to: lookup.add(to, lookup.PinRow(999_999, "", "me", 1))
    )
    assert within(world.settings, lookup.every) == [lookup.PinRow(tree, "m", "me", 2)]
    assert within(world.settings, covered) == [True, False, True, False]
    world.rename("job", "kept")
    assert within(world.settings, covered) == [True, False, True, False]
    found = within(world.settings, store.protected)
    assert found == ProtectedInodes(frozenset(), frozenset({b"kept/step-5"}))
    world.rename("kept/step-5", "moved")
    for path in SAVED:
        world.remove(path.replace("job/step-5", "moved"))
    world.remove("moved/deep")
    world.remove("moved")
    assert within(world.settings, lookup.every) == []


Run = Callable[..., str]


@pytest.fixture
def run(configured: World, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command. Its result is what the command printed."""

    def run(expected: int, *words: str) -> str:
        command, *rest = words
        assert main([command, "--config", str(configured.settings.source), *rest]) == expected
        said = capsys.readouterr()
        return said.out + said.err

    return run


def listed(run: Run, *words: str) -> list[dict[str, Any]]:
    document: list[dict[str, Any]] = json.loads(run(0, *words, "--json"))
    return document


def test_the_commands_of_pins(configured: World, run: Run) -> None:
    save(configured, drains=False)
    assert run(0, "checkpoint", "pins") == "nothing is pinned\n"
    assert "pinned" in run(0, "checkpoint", "pin", "job/step-5", "--note", "for the paper")
    assert "cannot be pinned" in run(1, "checkpoint", "pin", "/")
    assert "no such file" in run(1, "checkpoint", "pin", "missing")
    [found] = listed(run, "checkpoint", "pins")
    assert (found["path"], found["note"]) == ("/checkpoints/job/step-5", "for the paper")
    assert "for the paper" in run(0, "checkpoint", "pins")
    assert "(pinned)" in run(0, "ls", "-l", "job")
    [facts] = json.loads(run(0, "stat", "--json", SAVED[0]))
    assert facts["pinned"] is True
    assert "not pinned by itself" in run(1, "checkpoint", "unpin", SAVED[0])
    assert "not pinned any more" in run(0, "checkpoint", "unpin", "job/step-5")
    assert run(0, "checkpoint", "pins") == "nothing is pinned\n"


def test_the_commands_of_promotions(configured: World, run: Run) -> None:
    save(configured, drains=False)
    best_of = ("promote", "job/step-5", "--as", "best", "--no-wait")
    assert "3 files, 71 B are not in the bucket yet (job/step-5/.metadata)" in run(1, *best_of)
    configured.write("job/step-6/__0_0.distcp", b"1")
    configured.write("plain/f", b"1")
    for path in (*SAVED, "job/step-6/__0_0.distcp", "plain/f"):
        configured.drain(path)
    # The catalogue has no row of it, and then one of an earlier state.
    assert "yet to look at its last change" in run(1, *best_of)
    follow(configured.follower())
    configured.write("job/step-5/more", b"1")
    configured.drain("job/step-5/more")
    assert "yet to look at its last change" in run(1, *best_of)
    configured.namespace.remove(ROOT_CRED, configured.directory("job/step-5"), b"more")
    follow(configured.follower())
    unfinished = run(1, "checkpoint", "promote", "job/step-6", "--as", "best", "--no-wait")
    assert "not complete: .metadata is missing" in unfinished
    assert run(0, "promotion", "list") == "nothing is promoted\n"
    configured.namespace.mknod(
        ROOT_CRED, configured.directory("odd"), b"pipe", InodeKind.FIFO, 0, SetAttr()
    )
    for path, why in (
        ("odd", "odd/pipe: only files"),
        ("/", "the whole export"),
        (".spillway/promoted", "stays already"),
        ("missing", "there is no missing"),
    ):
        assert why in run(1, "checkpoint", "promote", path, "--as", "best", "--no-wait")
    assert "cannot be the name of a promotion" in run(2, *best_of[:3], "a/b", "--no-wait")
    assert "best  copying  3 files" in run(0, *best_of, "--note", "paper")
    assert "there is a promotion best (copying)" in run(2, *best_of)
    text = run(0, "checkpoint", "promote", "plain", "--as", "plain", "--no-wait")
    assert "no rule recognised it as a checkpoint" in text
    facts = status_of(configured.settings)["promotions"]
    assert list(line(facts)) == [("promotions", "2 copying")]
    assert list(line({**facts, "copying": 0})) == []
    [best, plain] = listed(run, "promotion", "list")
    assert (best["run"], best["step"], best["note"], best["files"]) == ("job", 5, "paper", 3)
    assert best["path"] == "/checkpoints/.spillway/promoted/best"
    assert (plain["source"], plain["run"]) == ("/checkpoints/plain", None)
    assert "3 files, 71 B would be removed for good" in run(1, "promotion", "remove", "best")
    assert "no promotion other" in run(2, "promotion", "remove", "other", "--yes")
    assert [entry["state"] for entry in listed(run, "promotion", "list")] == ["copying", "copying"]
    assert run(0, "promotion", "remove", "best", "--yes", "--no-wait") == "best: is being removed\n"
    assert listed(run, "promotion", "list")[0]["state"] == "demoting"


def test_the_commands_do_not_wait_for_what_cannot_come(
    configured: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promotions, "DEAD_SECONDS", 0.0)
    save(configured, drains=False)
    assert "the gateway does not run" in run(
        2, "checkpoint", "promote", "job/step-5", "--as", "best"
    )
    for path in SAVED:
        configured.drain(path)
    follow(configured.follower())
    run(0, "checkpoint", "promote", "job/step-5", "--as", "best", "--no-wait")
    assert "the gateway does not run" in run(2, "promotion", "remove", "best", "--yes")
    set_state = f"UPDATE promotion SET state = '{PromotionState.DONE}'"
    monkeypatch.setattr(time, "sleep", lambda _s: query(configured.settings, set_state))
    monkeypatch.setattr(promotions, "DEAD_SECONDS", 9.0)
    assert "best is done, and is not removed" in run(2, "promotion", "remove", "best", "--yes")
    job = configured.directory("job")
    trash.discard(configured.settings, configured.namespace, job, b"step-5", b"t9")
    trashed = run(1, "checkpoint", "promote", ".spillway/trash/t9", "--as", "more", "--no-wait")
    assert "spillway trash restore" in trashed


def test_what_a_killed_save_left_is_not_waited_for(configured: World, run: Run) -> None:
    at, left = "out/checkpoint-5", ("out/checkpoint-5/.tmp123abc", "out/checkpoint-5/in/.tmp123abd")
    for name in ("trainer_state.json", "model.safetensors", "in/f"):
        is_model = name == "model.safetensors"
        configured.write(f"{at}/{name}", safetensors() if is_model else b'{"global_step": 5}')
        configured.drain(f"{at}/{name}")
    for path in left:
        configured.write(path, b"half")
    durable = ("wait", "--timeout", "0", "--durable")
    promote_it = ("promote", at, "--as", "best", "--no-wait")
    # Without the catalogue, all files are members.
    assert "2 files, 8 B" in run(1, *durable, at)
    assert "2 files, 8 B" in run(1, *promote_it)
    follow(configured.follower())
    row = configured.row(at)
    assert row is not None
    assert (row.state, row.files) == ("durable", 3)
    for path in (at, "out", f"{at}/in"):
        assert run(0, *durable, path) == ""
    # An open one is still written.
    configured.open(left[0])
    assert "1 file," in run(1, *durable, at)
    configured.close(left[0], b"half")
    assert "best  copying  3 files" in run(0, *promote_it)
    rows = query(configured.settings, "SELECT path FROM promotion_member ORDER BY path")
    assert {bytes(path) for (path,) in rows} == {
        b"",
        b"in",
        b"in/f",
        b"model.safetensors",
        b"trainer_state.json",
    }
    configured.write("out/.tmp123abe", b"half")
    assert "1 file, 4 B" in run(1, *durable, "out")


def test_a_wait_looks_again_when_its_file_is_gone(
    configured: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(configured)
    for name in ("a", "b"):
        configured.write(f"job/step-5/{name}", b"1")
    top = configured.directory("job/step-5")
    steps: Iterator[Callable[[], object]] = iter(
        (
            lambda: configured.namespace.remove(ROOT_CRED, top, b"a"),
            lambda: configured.rename("job/step-5/b", "b"),
        )
    )
    monkeypatch.setattr(time, "sleep", lambda _seconds: next(steps)())
    assert run(0, "wait", "--durable", "job/step-5") == ""
    configured.write("job/step-5/a", b"1")
    job = configured.directory("job")
    steps = iter(
        [lambda: trash.discard(configured.settings, configured.namespace, job, b"step-5", b"t9")]
    )
    assert "spillway trash restore" in run(1, "wait", "--durable", "job/step-5")
