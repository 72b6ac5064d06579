"""What does not go into the trash: what changed, what clients could change, what was asked late."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product

import pytest

from gateway.common.errors import ReadOnly, TrashRefused
from gateway.db.engine import Database
from gateway.db.models import TRASH_INO
from gateway.namespace import reserved as reserved_module
from gateway.rpc.frames import RpcReply, RpcRequest
from tests.support.checkpoints.trashing import NamespaceControlSocket, put, save, trash_of
from tests.support.checkpoints.world import World, follow
from tests.support.direct import Direct
from tests.support.t9.trash import PATH, RUN, names, reserved
from tests.support.volumes import query

CHANGED: dict[str, Callable[[World, str], object]] = {
    "written": lambda world, path: world.write(f"{path}/a.distcp", b"newer"),
    "open": lambda world, path: world.open(f"{path}/a.distcp"),
    "a new file": lambda world, path: world.write(f"{path}/deep/new.distcp", b"1"),
    "a file less": lambda world, path: world.remove(f"{path}/a.distcp"),
    "moved": lambda world, path: world.rename(path, f"{path}0"),
}


def test_what_is_not_as_it_was_seen_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changed before the trash looks, and between its look and the last inode that is reserved."""
    waiting: list[Callable[[], object]] = []
    trash = trash_of(world)
    reserve = reserved_module.reserve

    def reserve_late(database: Database, top: int, on_page: Callable[[], None]) -> None:
        waiting.pop()()
        reserve(database, top, on_page)

    monkeypatch.setattr(reserved_module, "reserve", reserve_late)
    for number, (change, is_between) in enumerate(product(CHANGED, (True, False))):
        path = f"run-{number}/step-1"
        save(world, path)
        follow(world.follower())
        row = world.row(path)
        assert row is not None
        waiting = [partial(CHANGED[change], world, path)]
        if not is_between:
            waiting.pop()()
        with pytest.raises(TrashRefused):
            trash.put(row.ino, row.path, row.evidence, "policy", "why")
        assert names(world, TRASH_INO) == [], change
        assert query(world.settings, "SELECT count(*) FROM trash") == [(0,)], change
        assert reserved(world) == 5, change
    # As the catalogue saw it, and yet: a job works on it.
    save(world, PATH)
    world.open(f"{PATH}/a.distcp")
    with pytest.raises(TrashRefused, match="1 of its files are open"):
        put(world, trash, PATH)


def test_nothing_changes_between_the_last_look_and_the_rename(world: World) -> None:
    refused: list[str] = []

    def change() -> None:
        for name, one in CHANGED.items():
            with pytest.raises(ReadOnly):
                one(world, PATH)
            refused.append(name)

    trash = trash_of(world, change)
    save(world, PATH, "deep/new.distcp")
    put(world, trash, PATH)
    assert refused == list(CHANGED) and names(world, TRASH_INO) != []


def test_what_clients_may_still_change_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve = reserved_module.reserve

    def all_but_one(database: Database, top: int, on_page: Callable[[], None]) -> None:
        reserve(database, top, on_page)
        query(world.settings, "UPDATE inode SET reserved = 0 WHERE ino = :ino", ino=file)

    trash = trash_of(world)
    save(world, PATH)
    file = world.attr(f"{PATH}/a.distcp").ino
    monkeypatch.setattr(reserved_module, "reserve", all_but_one)
    with pytest.raises(TrashRefused, match="it changed a moment ago"):
        put(world, trash, PATH)


def test_a_request_that_comes_late_moves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The NFS server may carry a request out after its process was told of a failure, or ended."""
    late: list[RpcRequest] = []

    def lose(self: NamespaceControlSocket, requests: Sequence[RpcRequest]) -> list[RpcReply]:
        late.extend(requests)
        return [RpcReply(errno.EIO, None)]

    def arrive() -> None:
        [answer] = Direct.run(NamespaceControlSocket(world.namespace, lambda: None), [late.pop()])
        assert answer.errno == errno.EBUSY

    trash = trash_of(world)
    save(world, PATH)
    give_back = reserved_module.give_back

    def give_back_late(database: Database, top: int, on_page: Callable[[], None]) -> None:
        late.append(late[-1])
        arrive()
        give_back(database, top, on_page)

    with monkeypatch.context() as patch:
        patch.setattr(NamespaceControlSocket, "run", lose)
        patch.setattr(reserved_module, "give_back", give_back_late)
        with pytest.raises(TrashRefused, match="the NFS server failed"):
            put(world, trash, PATH)
        # Nor while another process is on its way with the same checkpoint.
        with pytest.raises(TrashRefused, match="the NFS server failed"):
            put(world, trash_of(world, lambda: None), PATH)
    first, second = late
    late[:] = [second]
    arrive()
    late[:] = [first]
    trashed = put(world, trash_of(world, arrive), PATH)
    assert late == [] and reserved(world) == 8
    with monkeypatch.context() as patch:
        patch.setattr(NamespaceControlSocket, "run", lose)
        with pytest.raises(TrashRefused, match="stays in the trash"):
            trash.undelete(trashed, by="me")
    arrive()
    assert [entry.state for entry in trash.entries()] == ["kept"]


def test_what_is_no_checkpoint_or_has_more_in_it_stays(world: World) -> None:
    trash = trash_of(world)
    save(world, PATH)
    follow(world.follower())
    row = world.row(PATH)
    assert row is not None
    with pytest.raises(TrashRefused, match="not as it was"):
        trash.put(row.ino, row.path, "", "policy", "why")
    with pytest.raises(TrashRefused, match="not as it was"):
        trash.put(row.ino, row.path, "another", "policy", "why")
    with pytest.raises(TrashRefused, match="it is run/step-1 now"):
        trash.put(row.ino, b"run/step-9", row.evidence, "policy", "why")
    with pytest.raises(TrashRefused, match="no checkpoint"):
        trash.put(world.directory(RUN), b"run", row.evidence, "policy", "why")
    # A final model consists of the files of a directory. The directory has more than that.
    save(world, "job")
    save(world, "job/step-4")
    follow(world.follower())
    row = world.row("job")
    assert row is not None
    with pytest.raises(TrashRefused, match="directories"):
        trash.put(row.ino, row.path, row.evidence, "policy", "why")
