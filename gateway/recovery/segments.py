"""Segments: the files of which the copy of the names consists.

A segment is lines of JSON, compressed with gzip, so that ``zcat`` and any program can read it. Each
line is an array that begins with a word:

- ``["head", {...}]``: the first line (``SegmentHead``).
- ``["gone", [17, 18, ...]]``: the inodes whose rows this segment has as they are now. Whatever an
  earlier segment says of them is void. A segment of a base has no such lines.
- ``["rows", "dirent", [[...], ...]]``: rows of a table. The head says which columns they have, and
  in which form.
- ``["drop", "pin", [[...], ...]]``: primary keys of rows that are gone, or null: all rows are.
- ``["end", 1234]``: the last line, with the number of rows. Without it the segment is not whole.

All "gone" and "drop" lines come before the rows. So a reader that takes lines in order never has
two rows in one place, and needs the memory of one line.
"""

from __future__ import annotations

import gzip
import io
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

from gateway.common.errors import SpillwayError

FORMAT = 1
"""The version of this format. A reader refuses a higher one."""
ROWS_IN_LINE = 256
LEVEL = 1
"""Level 6 makes segments a tenth smaller, in more than twice the time."""
SUFFIX = ".jsonl.gz"


JsonRow = list[Any]
"""The values of a row: numbers, texts and nulls."""


class BadSegment(SpillwayError):
    """A segment is not whole, or cannot be understood."""


class TableForm(NamedTuple):
    """What the rows of a table are. A segment says it, so that a later release can use one whose
    tables were others."""

    columns: list[str]
    """In the order of the values of a row."""
    key: list[str]
    """The columns of the primary key."""
    ino: str | None
    """The column with the inode that a row belongs to. None: "drop" lines say what is gone."""
    names: list[str]
    """Columns of bytes, as text with the surrogate escapes of PEP 383."""
    base64: list[str]
    """Columns of other bytes (RFC 4648 section 4)."""

    def encoded(self, rows: Iterable[Sequence[Any]]) -> list[JsonRow]:
        """Return rows of the database as JSON has them."""
        return self._converted(rows, _text_of_name, _text_of_bytes)

    def decoded(self, rows: Iterable[JsonRow]) -> list[JsonRow]:
        """Return rows as the database takes them. Raises ValueError."""
        return self._converted(rows, _name_of_text, b64decode)

    def decoded_keys(self, keys: Iterable[JsonRow]) -> list[JsonRow]:
        """Return primary keys as the database takes them. Raises ValueError."""
        at_key = self._replace(
            columns=self.key,
            names=[column for column in self.names if column in self.key],
            base64=[column for column in self.base64 if column in self.key],
        )
        return at_key.decoded(keys)

    def _converted(
        self,
        rows: Iterable[Sequence[Any]],
        of_name: Callable[[Any], Any],
        of_bytes: Callable[[Any], Any],
    ) -> list[JsonRow]:
        converted = [list(row) for row in rows]
        for columns, convert in ((self.names, of_name), (self.base64, of_bytes)):
            for at in map(self.columns.index, columns):
                for row in converted:
                    if row[at] is not None:
                        row[at] = convert(row[at])
        return converted


def _text_of_bytes(value: bytes) -> str:
    return b64encode(value).decode("ascii")


def _text_of_name(value: bytes) -> str:
    return bytes(value).decode("utf-8", "surrogateescape")


def _name_of_text(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class SegmentHead:
    """The first line of a segment."""

    schema: str
    """Revision of the database's schema."""
    namespace: str
    """Id of the namespace, in hex."""
    at_ns: int
    """When the rows were read, by the gateway's clock."""
    after: int
    """The row of the journal after which the segment tells every change."""
    upto: int
    """The row of the journal up to which it does. Of a base: as far as it was when it was read."""
    volume: JsonRow
    """The row of ``volume`` then."""
    tables: Mapping[str, TableForm]
    format: int = FORMAT


class SegmentWriter:
    """A segment that is made in memory.

    Args:
        head: its first line.
    """

    def __init__(self, head: SegmentHead) -> None:
        self._buffer = io.BytesIO()
        self._zip = gzip.GzipFile(fileobj=self._buffer, mode="wb", compresslevel=LEVEL, mtime=0)
        self.rows = 0
        """The rows that it has so far."""
        self._line(["head", vars(head)])

    def gone(self, inos: Sequence[int]) -> None:
        """Add inodes whose earlier rows are void."""
        for at in range(0, len(inos), ROWS_IN_LINE):
            self._line(["gone", inos[at : at + ROWS_IN_LINE]])

    def drop(self, table: str, keys: Sequence[Sequence[Any]]) -> None:
        """Add primary keys of rows that are gone."""
        for at in range(0, len(keys), ROWS_IN_LINE):
            self._line(["drop", table, keys[at : at + ROWS_IN_LINE]])

    def drop_all(self, table: str) -> None:
        """Say that all earlier rows of a table are gone."""
        self._line(["drop", table, None])

    def add(self, table: str, rows: Sequence[JsonRow]) -> None:
        """Add rows of a table."""
        for at in range(0, len(rows), ROWS_IN_LINE):
            self._line(["rows", table, rows[at : at + ROWS_IN_LINE]])
        self.rows += len(rows)

    def finish(self) -> bytes:
        """Add the last line. Returns the segment."""
        self._line(["end", self.rows])
        self._zip.close()
        return self._buffer.getvalue()

    def _line(self, content: Sequence[Any]) -> None:
        self._zip.write(json.dumps(content, separators=(",", ":")).encode("ascii") + b"\n")


Line = Sequence[Any]


class SegmentReader:
    """A segment that is read line by line.

    Args:
        file: the compressed bytes.
        name: of the segment, for errors.

    Raises:
        BadSegment: it has no head, or one of a newer format.
    """

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._name = name
        self._lines = self._parsed(file)
        word, facts = _two(next(self._lines, ("", None)))
        if word != "head" or not isinstance(facts, dict):
            raise BadSegment(f"{name} does not begin with a head")
        if facts.get("format", 0) > FORMAT:
            raise BadSegment(
                f"{name} was written by a newer Spillway (format {facts['format']}): install that"
            )
        try:
            forms = {name: TableForm(*form) for name, form in facts.pop("tables").items()}
            self.head = SegmentHead(**facts, tables=forms)
        except (TypeError, KeyError, AttributeError) as exc:
            raise BadSegment(f"{name}: its head cannot be understood: {exc}") from None

    def lines(self) -> Iterator[Line]:
        """Yield the lines between the head and the end.

        Raises:
            BadSegment: the segment is not whole.
        """
        rows = 0
        for line in self._lines:
            if line[0] == "end":
                if line[1] != rows:
                    raise BadSegment(f"{self._name} has {rows} rows, {line[1]} expected")
                return
            if line[0] == "rows":
                rows += len(line[2])
            yield line
        raise BadSegment(f"{self._name} ends too early")

    def _parsed(self, file: IO[bytes]) -> Iterator[Line]:
        try:
            with gzip.GzipFile(fileobj=file, mode="rb") as unzipped:
                for text in unzipped:
                    line = json.loads(text)
                    if not isinstance(line, list) or not line:
                        raise ValueError("a line is no array")
                    yield line
        except (OSError, EOFError, ValueError) as exc:
            raise BadSegment(f"{self._name} cannot be read: {exc}") from None


def batches(numbers: Iterable[int], size: int) -> Iterator[list[int]]:
    """Yield sorted numbers in lists of a size."""
    ordered = sorted(numbers)
    for at in range(0, len(ordered), size):
        yield ordered[at : at + size]


def _two(line: Line) -> tuple[Any, Any]:
    return (line[0], line[1]) if len(line) == 2 else ("", None)
