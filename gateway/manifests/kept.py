"""The rows of ``manifest``: what the bucket has at the key of each manifest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gateway import clock
from gateway.checkpoints.looks import Row
from gateway.db.compiled import Session, Statement
from gateway.db.engine import Database
from gateway.manifests import statements as own
from gateway.manifests.document import name_of
from gateway.objectstore import keys
from gateway.settings import BucketSettings


class Kept(NamedTuple):
    """A row of ``manifest``."""

    key: str
    ino: int
    path: bytes
    change: int
    evidence: str
    durable_ns: int
    etag: str | None
    written_ns: int
    look_ns: int | None

    def is_of(self, row: Row) -> bool:
        """Whether it was made of a checkpoint as the row says that it is."""
        made_of = (self.ino, self.evidence, self.durable_ns)
        return made_of == (row.ino, row.evidence, row.durable_ns)


class Shelf:
    """The table, of one gateway. Not safe to use from several threads.

    Parameters: database; bucket.
    """

    def __init__(self, database: Database, bucket: BucketSettings) -> None:
        self._database = database
        self._below = keys.manifests_below(bucket.prefix)
        self._trash = f"{keys.key_of(bucket.prefix, keys.TRASH)}/"
        self._late_ns = int(bucket.late_seconds * clock.NS)

    def missing(self) -> list[int]:
        """Return the durable checkpoints without their manifest. Raises TryAgain."""
        with self._database.reading() as session:
            return [ino for (ino,) in session.all(own.MISSING)]

    def untrue(self) -> list[Kept]:
        """Return the manifests that must go. That of a checkpoint which is held for a newer one
        stays while the objects are where it says. Raises TryAgain."""
        with self._database.reading() as session:
            found = [_kept(row) for row in session.all(own.UNTRUE)]
            held: dict[int, list[int]] = {}
            for ino, top in session.all(own.HELD) if found else ():
                held.setdefault(ino, []).append(top)
            return [one for one in found if not self._is_held(session, held.get(one.ino, ()))]

    def _is_held(self, session: Session, tops: Sequence[int]) -> bool:
        """Return whether the bucket has what clients removed of a checkpoint at its keys. An object
        gives way to that of another file with its path, and goes below the key of the trash."""
        stored = (key for top in tops for (key,) in session.all(own.KEYS_BELOW, top=top))
        return bool(tops) and not any(key.startswith(self._trash) for key in stored)

    def doubtful(self) -> list[Kept]:
        """Return the manifests that must be looked at. Raises TryAgain."""
        now_ns = clock.now_ns()
        return self._kept(own.DOUBTFUL, now_ns=now_ns, late_ns=now_ns + self._late_ns)

    def place(self, row: Row) -> tuple[str, Kept | None]:
        """Return the key of a checkpoint's manifest, and its row. Raises TryAgain.

        Of two checkpoints with one step, the first that is durable has the key of the step.
        """
        run = [name for name in row.run.split(b"/") if name]
        with self._database.reading() as session:
            for ino in (None, row.ino):
                key = keys.key_of(self._below, [*run, name_of(row.path, row.step, ino)])
                found = session.one(own.ROW, the_key=key)
                kept = None if found is None else _kept(found)
                if kept is None or kept.ino == row.ino:
                    break
                if session.one(own.IS_THERE, ino=kept.ino) is None:
                    break
        return key, kept

    def intend(self, key: str, row: Row, change: int, before: Kept | None) -> Kept:
        """Record that a manifest is about to be put. Raises TryAgain.

        Parameters: change, of the checkpoint's inode; before, the row of the key.
        """
        now_ns = clock.now_ns()
        assert row.durable_ns is not None, "a manifest is of a durable checkpoint"
        facts = (key, row.ino, row.path, change, row.evidence, row.durable_ns, None, now_ns)
        made = Kept(*facts, now_ns + self._late_ns)
        with self._database.writing() as session:
            session.run(own.DELETE, the_key=key)
            session.run(own.INSERT, **made._asdict())
        return made._replace(look_ns=None if before is None else before.look_ns)

    def know(self, kept: Kept, is_doubtful: bool = False) -> None:
        """Record what is at a key. Raises TryAgain.

        Parameters: is_doubtful, whether a request was given up that may still be carried out.
        """
        look_ns = clock.now_ns() + self._late_ns if is_doubtful else kept.look_ns
        with self._database.writing() as session:
            session.run(own.KNOWN, the_key=kept.key, new_etag=kept.etag, new_look_ns=look_ns)

    def forget(self, kept: Kept) -> None:
        """Record that there is nothing of ours at a key. Raises TryAgain."""
        if kept.look_ns is not None and clock.is_ahead(kept.look_ns, self._late_ns):
            # An earlier request may still bring a manifest. The row stays until it cannot.
            self.know(kept._replace(etag=None))
            return
        with self._database.writing() as session:
            session.run(own.DELETE, the_key=kept.key)

    def _kept(self, statement: Statement, **parameters: Any) -> list[Kept]:
        with self._database.reading() as session:
            return [_kept(row) for row in session.all(statement, **parameters)]


def _kept(row: Any) -> Kept:
    made = Kept(*row)
    return made._replace(path=bytes(made.path))
