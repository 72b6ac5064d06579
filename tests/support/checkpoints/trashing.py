"""Trash of a namespace that a test has open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from gateway.db.engine import Database
from gateway.lifecycle.trash.trash import Trash
from gateway.rpc.frames import RpcReply, RpcRequest
from tests.support.checkpoints.records import record
from tests.support.checkpoints.world import World, follow
from tests.support.direct import Direct, reclaim
from tests.support.namespace import Namespace


class NamespaceControlSocket(Direct):
    """The control socket of a namespace that is open in this process.

    Args:
        before: called before each request is run.
    """

    def __init__(self, namespace: Namespace, before: Callable[[], object]) -> None:
        self._namespace = namespace
        self._before = before

    def run(self, requests: Sequence[RpcRequest]) -> list[RpcReply]:
        self._before()
        return super().run(requests)


@contextmanager
def _opened(namespace: Namespace, before: Callable[[], object]) -> Iterator[NamespaceControlSocket]:
    yield NamespaceControlSocket(namespace, before)
    reclaim(namespace)


def opener(
    namespace: Namespace, before: Callable[[], object] = lambda: None
) -> Callable[[], AbstractContextManager[NamespaceControlSocket]]:
    """Return what opens the control socket.

    Args:
        before: called before each request is run.
    """
    return partial(_opened, namespace, before)


def trash_of(world: World, before: Callable[[], object] = lambda: None) -> Trash:
    """Return the trash of a world."""
    database = Database(world.settings.database_url)
    world._databases.append(database)
    return Trash(world.settings, database, opener(world.namespace, before))


def save(world: World, path: str, *names: str) -> None:
    """Save a checkpoint."""
    for name in (*names, "a.distcp", ".metadata"):
        world.write(f"{path}/{name}", name.encode())


def put(world: World, trash: Trash, path: str, by: str = "policy keep-3") -> str:
    """Put a checkpoint into the trash as retention does: by its row in the catalogue."""
    follow(world.follower())
    record(world.settings)
    row = world.row(path)
    assert row is not None, f"{path} is no checkpoint"
    return trash.put(row.ino, row.path, row.evidence, by, "it is not among the newest 3")
