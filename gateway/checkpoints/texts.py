"""Reads bytes that rules ask for from local data files."""

from __future__ import annotations

from collections import OrderedDict

from gateway.checkpoints import statements as own
from gateway.checkpoints.facts import Entry, Unread
from gateway.data.layout import DataFiles
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.types import Residency

KEPT = 256
KEPT_MAX_BYTES = 16_384
"""Larger pieces are not remembered."""


class Texts:
    """Pieces of files. It remembers small ones: the tracker of a run is asked for by each of its
    checkpoints, and a file that is evicted still has the same bytes.

    Parameters: database; files.
    """

    def __init__(self, database: Database, files: DataFiles) -> None:
        self._database = database
        self._files = files
        self._kept: OrderedDict[tuple[int, int, int, int], bytes] = OrderedDict()

    def read(self, name: bytes, entry: Entry, start: int, length: int) -> bytes:
        """Return ``length`` bytes of a version of a file, from ``start``, or those up to its end.

        Raises Unread if the version is not whole on the local disk, is being written, or is not the
        newest one.
        """
        if entry.is_open:
            raise Unread(name, entry)
        where = (entry.ino, entry.content_version, start, length)
        if (kept := self._kept.get(where)) is not None:
            self._kept.move_to_end(where)
            return kept
        if entry.is_absent:
            raise Unread(name, entry)
        try:
            with self._files.path(entry.ino, entry.epoch).open("rb") as file:
                file.seek(start)
                found = file.read(length)
        except FileNotFoundError:
            found = b""  # nothing was ever written, or the disk lost it
        except OSError as exc:
            # A disk that fails must not end the look at all other checkpoints.
            raise Unread(name, entry) from exc
        if len(found) < min(length, entry.size - start):
            # The disk lost the end of the data file. A checkpoint is not judged by what is left.
            raise Unread(name, entry)
        # What was read may be of a writer who came since, or of the epoch after an eviction.
        if not self._is_still(entry):
            raise Unread(name, entry)
        if len(found) <= KEPT_MAX_BYTES:
            self._kept[where] = found
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return found

    def _is_still(self, entry: Entry) -> bool:
        with self._database.reader() as connection:
            row = Session(connection, self._database.dialect).one(own.INODE, ino=entry.ino)
        return row is not None and entry_of(row)[3:] == entry[3:]


def entry_of(row: object) -> Entry:
    """Return the entry of a row that ends with ENTRY_COLUMNS."""
    assert isinstance(row, tuple)
    ino, kind, size, is_open, change, content_version, epoch, residency = row[-8:]
    is_absent = residency == Residency.ABSENT
    return Entry(ino, kind, size, bool(is_open), change, content_version, epoch, is_absent)
