"""Writer of the NFS server's process: clients' changes in group commits.

Clients' changes come in batches (fsal/native/call.c queues them, without the interpreter's lock).
One transaction and one COMMIT serve a batch, so a durable change costs a share of one fsync. A
client gets its answer only after COMMIT returned. That is the durability contract.

An operation that fails before it changed anything costs nothing. An operation that fails later
makes the whole batch run again, with a savepoint for each operation. This is rare, because
operations check before they write. Savepoints in every batch would be a quarter of all statements.

``TransactionCounts`` is memory that the NFS server's C reads, a ``struct spw_commits``
(fsal/native/bridge.h). Only the thread that commits writes it, one aligned word at a time, so that
a reader needs no lock.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from gateway.common import clock, failpoints
from gateway.common.errors import SpillwayError, TryAgain
from gateway.common.types import Attr
from gateway.db import journal
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement
from gateway.db.engine import Connection, Database
from gateway.db.latest_links import LinkGuards

SIZES = 8
"""Buckets of the sizes: at most 1, 2, 4, … 64 changes, and more."""
DURATIONS = 26
"""Buckets of the durations: at most 1, 2, 4, … 2^24 µs, and more."""
_CHANGES = SIZES
_FIRST = SIZES + 1
_DURATION = _FIRST + DURATIONS
WORDS = _DURATION + 1


class TransactionCounts:
    """The counts, from zero."""

    def __init__(self) -> None:
        self._words = array("Q", bytes(8 * WORDS))
        self.commits = 0
        """The number of committed transactions."""

    @property
    def address(self) -> int:
        """The address of the memory, which stays as long as this object does."""
        return self._words.buffer_info()[0]

    def add(self, changes: int, duration_ns: int) -> None:
        """Count a transaction.

        Args:
            duration_ns: the time that COMMIT took.
        """
        words = self._words
        size = max(changes - 1, 0).bit_length()
        duration = (max(duration_ns - 1, 0) // 1000).bit_length()
        words[min(size, SIZES - 1)] += 1
        words[_CHANGES] += changes
        words[_FIRST + min(duration, DURATIONS - 1)] += 1
        words[_DURATION] += duration_ns
        self.commits += 1


P = ParamSpec("P")
T = TypeVar("T")

RESERVE_BLOCK = 4096
LAST_SECONDS = 5.0
"""A server that stops waits so long for a commit that is under way."""


@dataclass(slots=True)
class Effects:
    """What the operations of one transaction do beside their rows."""

    named: LinkGuards = field(default_factory=LinkGuards)
    touched: dict[int, int] = field(default_factory=dict)
    """The flags of the inodes that they touched, for the journal."""
    after: list[Callable[[], None]] = field(default_factory=list)
    """What is called when the transaction is committed."""


class Tx(Session):
    """One operation inside the writer's transaction."""

    __slots__ = ("_after", "_ids", "_name", "_touched", "_writes", "directories", "named", "now_ns")

    def __init__(
        self, connection: Connection, dialect: Any, ids: Ids, name: str, effects: Effects
    ) -> None:
        super().__init__(connection, dialect)
        self._ids = ids
        self._name = name
        self.named = effects.named
        self._touched = effects.touched
        self._after = effects.after
        self._writes = 0
        self.directories: list[Attr] = []
        """Directories whose entries this operation changed, as it left them."""
        self.now_ns = clock.now_ns()

    def run(self, statement: Statement, **params: Any) -> int:
        count = super().run(statement, **params)
        self._wrote()
        return count

    def change(self, statement: Statement, **params: Any) -> Sequence[Any] | None:
        """Run a change of one row. Returns the row afterwards, or None if there is no such row."""
        row = self.one(statement, **params)
        self._wrote()
        return row

    def _wrote(self) -> None:
        self._writes += 1
        if failpoints.armed():
            failpoints.hit(f"{self._name}.{self._writes}")

    def touch(self, ino: int, what: int = journal.CHANGED) -> None:
        """Say that an inode is not what it was, for the journal.

        Args:
            what: its flags.
        """
        self._touched[ino] = self._touched.get(ino, 0) | what

    def after_commit(self, call: Callable[[], None]) -> None:
        """Have a function called, which raises nothing, when the transaction is committed, also if
        the operation fails after this call."""
        self._after.append(call)

    @property
    def has_written(self) -> bool:
        """Whether the operation has written anything."""
        return self._writes > 0

    def reserve(self, operations: int) -> None:
        """Make sure that so many operations find numbers, if no writer has reserved them."""
        self._ids.reserve(self, operations)

    def new_ino(self) -> int:
        """Return an inode number that was never used."""
        return self._ids.ino()

    def new_cookie(self) -> int:
        """Return a directory cookie that was never used."""
        return self._ids.cookie()


class Ids:
    """Inode numbers and cookies, reserved in the database in blocks before any is used."""

    def __init__(self) -> None:
        self._inos = iter(range(0))
        self._cookies = iter(range(0))
        self._left = 0

    def reserve(self, session: Session, operations: int) -> None:
        """Make sure that so many operations find numbers (one inode, two cookies each)."""
        if self._left >= operations:
            return
        count = RESERVE_BLOCK
        row = session.one(sql.RESERVE, inos=count, cookies=2 * count)
        assert row is not None, "the volume row is missing"
        self._inos = iter(range(row[0] - count, row[0]))
        self._cookies = iter(range(row[1] - 2 * count, row[1]))
        self._left = count

    def forget(self) -> None:
        """Forget the reservation after a rollback, which may have undone it."""
        self._left = 0

    def spent(self, operations: int) -> None:
        self._left -= operations

    def ino(self) -> int:
        return next(self._inos)

    def cookie(self) -> int:
        return next(self._cookies)


class Operation(Generic[T]):
    """A change and its outcome.

    The failpoints at its writes have the name of the function.

    Args:
        function: makes the change in the transaction that is its first argument, and its other
            arguments.
    """

    __slots__ = ("_call", "before", "directories", "error", "name", "result")

    def __init__(
        self,
        function: Callable[Concatenate[Tx, P], T],
        /,
        *args: P.args,
        **named: P.kwargs,
    ) -> None:
        self.name = function.__name__.rstrip("_")
        self._call = (function, args, named)
        self.before: Callable[[Tx], None] | None = None
        """What is called in the transaction before the change, which reads only."""
        self.directories: list[Attr] = []
        """Directories whose entries the change touched, as it left them."""
        self.result: T | None = None
        self.error: BaseException | None = None

    def run(self, tx: Tx) -> T:
        """Make the change. Raises what the function raises."""
        function, args, named = self._call
        if self.before is not None:
            self.before(tx)
        return function(tx, *args, **named)

    def outcome(self) -> T:
        """Return the result. Raises what the operation raised."""
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]


class Writer:
    """Runs operations one after the other on one connection, many to a commit.

    Raises AnotherServer, TryAgain.

    Args:
        database: whose schema must be current.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: Connection | None = database.serve()
        self._ids = Ids()
        self.counts = TransactionCounts()
        """The counts of the committed transactions."""
        self.named = LinkGuards()
        """The checkpoints that links name. The caller fills it before clients are served."""
        self._committing = threading.Lock()
        self._is_ended = False

    def run(
        self, function: Callable[Concatenate[Tx, P], T], /, *args: P.args, **named: P.kwargs
    ) -> T:
        """Run one operation as a batch of one.

        Raises what the operation raised (its changes are then undone), NoSpace when the database
        cannot grow, TryAgain when another process held the database for too long.
        """
        operation = Operation(function, *args, **named)
        self.run_together([operation])
        return operation.outcome()

    def run_together(self, operations: Sequence[Operation[Any]]) -> None:
        """Run operations in one transaction, in this thread. Each succeeds or fails by itself.

        Returns after the transaction is on stable storage. Each operation has its outcome then.
        """
        with self._committing:
            self._run_locked(operations)

    def run_last(self, function: Callable[[Tx], T]) -> T:
        """Run one operation as ``run`` does. If it succeeds, nothing is committed after it.

        Raises TryAgain also if the fate of a commit is still not known.
        """
        operation = Operation(function)
        if not self._committing.acquire(timeout=LAST_SECONDS):
            raise TryAgain("the fate of a commit is not known")
        try:
            self._run_locked([operation])
            self._is_ended = operation.error is None
        finally:
            self._committing.release()
        return operation.outcome()

    def forget_numbers(self) -> None:
        """Reserve new inode numbers and cookies at the next change: other ones are known to be in
        use."""
        self._ids.forget()

    def _run_locked(self, operations: Sequence[Operation[Any]]) -> None:
        try:
            if self._is_ended:
                raise TryAgain("the NFS server stops")
            with self._database.backend.turn(first=True):
                self._transact(operations)
            self._ids.spent(len(operations))
        except BaseException as exc:
            self._ids.forget()
            error = self._answer(exc)
            for operation in operations:
                operation.result = None
                operation.error = error

    def bind(self, boot: int, on_loss: Callable[[], object]) -> None:
        """End the process, instead of any change, once another server has been started.

        Args:
            on_loss: called before the process ends because answered changes are lost.
        """
        self._database.backend.bind(boot, on_loss)

    def close(self) -> None:
        """Close the connection. No operation may be under way."""
        if self._connection is not None:
            self._connection.close()

    def _transact(self, batch: Sequence[Operation[Any]]) -> None:
        """Run a batch in one transaction. Raises if the transaction is not committed."""
        backend = self._database.backend
        if self._connection is None:
            self._connection = self._database.serve()
        connection = self._connection
        session = Session(connection, self._database.dialect)
        # What an undone operation touched stays here: an unnecessary row in the journal does no
        # harm.
        effects = Effects(self.named)
        try:
            token = backend.begin_serving(connection)
            self._ids.reserve(session, len(batch))
            if not all(self._run_one(connection, operation, effects) for operation in batch):
                connection.execute("ROLLBACK")
                effects.after.clear()
                self._ids.forget()
                token = backend.begin_serving(connection)
                self._ids.reserve(session, len(batch))
                for operation in batch:
                    self._run_apart(connection, operation, effects)
            journal.note(session, effects.touched)
        except BaseException:
            self._drop_unless_usable(connection)
            if self._connection is not None:
                self._database.undo(connection)
            raise
        failpoints.hit(failpoints.BEFORE_COMMIT)
        began_ns = clock.monotonic_ns()
        try:
            connection.execute("COMMIT")
        except BaseException:
            is_committed = backend.committed(connection, token)
            self._drop_unless_usable(connection)
            if not is_committed:
                if self._connection is not None:
                    self._database.undo(connection)
                raise
        for call in effects.after:
            call()
        self.counts.add(len(batch), clock.monotonic_ns() - began_ns)
        backend.wrote(token)
        failpoints.hit(failpoints.AFTER_COMMIT)

    def _drop_unless_usable(self, connection: Connection) -> None:
        if not self._database.backend.usable(connection):
            connection.close()
            self._connection = None

    def _run_one(self, connection: Connection, operation: Operation[Any], effects: Effects) -> bool:
        """Run an operation. Returns False if it failed and left something to be undone."""
        tx = Tx(connection, self._database.dialect, self._ids, operation.name, effects)
        operation.result = operation.error = None
        try:
            operation.result = operation.run(tx)
            operation.directories = tx.directories
        except self._database.backend.broken:
            # The disk, the lock or the connection failed: the whole batch is indeterminate.
            raise
        except BaseException as exc:
            operation.error = exc
            # After a refused statement, PostgreSQL refuses all that follow, even if nothing was
            # written.
            return isinstance(exc, SpillwayError) and not tx.has_written
        return True

    def _run_apart(
        self, connection: Connection, operation: Operation[Any], effects: Effects
    ) -> None:
        """Run an operation so that its failure undoes only this operation."""
        connection.execute("SAVEPOINT one")
        self._run_one(connection, operation, effects)
        if operation.error is not None:
            connection.execute("ROLLBACK TO SAVEPOINT one")
        connection.execute("RELEASE SAVEPOINT one")

    def _answer(self, exc: BaseException) -> BaseException:
        """Return the error that a caller gets when the transaction itself failed."""
        if isinstance(exc, self._database.backend.broken):
            return self._database.backend.answer(exc) or SpillwayError(f"commit failed: {exc}")
        return exc if isinstance(exc, SpillwayError) else SpillwayError(f"commit failed: {exc}")
