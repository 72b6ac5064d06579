"""Objects of the copy of the names: their keys, what is there, and reading them.

    names/<series>/log/<after>-<upto>-<number>-<random>.jsonl.gz
    names/<series>/base/<after>-<random>/<number>.jsonl.gz
    names/<series>/base/<after>-<random>.json

``after`` and ``upto`` are rows of the journal. A series is one unbroken log: a journal that was not
kept, or a restored database, begins another one, with a higher number at its beginning. The
document of a base is put when all of its segments are there, so without it there is no base.
"""

from __future__ import annotations

import io
import json
import re
import secrets
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from gateway.objectstore.objects import ListedObject
from gateway.recovery.copy_objects import CopyObjects
from gateway.recovery.segments import SUFFIX, BadSegment, SegmentReader

DOCUMENT = ".json"
READS_AHEAD = 8
"""Segments that are read at a time."""
_SERIES = re.compile(r"(\d{6})-[0-9a-f]{8}")
_LOG = re.compile(r"(\d{20})-(\d{20})-(\d{10})-([0-9a-f]{8})" + re.escape(SUFFIX))
_BASE = re.compile(r"(\d{20})-[0-9a-f]{8}")


class LogSegment(NamedTuple):
    """A segment of a log, as its key says."""

    upto: int
    """Segments are used in the order of the first two."""
    number: int
    after: int
    listed: ListedObject


@dataclass(frozen=True)
class BaseDocument:
    """The document of a base. What it lists is read in the order of the list."""

    name: str
    """The directory of its segments."""
    namespace: str
    """Id of the namespace, in hex."""
    after: int
    """The row of the journal after which the log continues it."""
    upto: int
    """The row up to which the log must be used with it: what was read early may be older."""
    began_ns: int
    ended_ns: int
    inodes: int
    rows: int
    segments: Sequence[tuple[str, int]]
    """The name and the size in bytes of each segment."""

    @property
    def size(self) -> int:
        """The bytes of all segments."""
        return sum(size for _name, size in self.segments)


@dataclass
class Series:
    """What the bucket has of one series."""

    name: str
    log: list[LogSegment] = field(default_factory=list)
    documents: list[ListedObject] = field(default_factory=list)
    """The documents of bases."""
    parts: list[ListedObject] = field(default_factory=list)
    """The segments of bases."""

    def objects(self) -> Iterator[ListedObject]:
        """Yield all of them, the documents first: without its document a base is not used."""
        yield from self.documents
        yield from self.parts
        yield from (segment.listed for segment in self.log)


class NamesStore:
    """The copy of the names in one place.

    Args:
        objects: of the copy.
    """

    def __init__(self, objects: CopyObjects) -> None:
        self._objects = objects
        self._below = f"{objects.below}names/"
        self._token = secrets.token_hex(4)
        """The end of the names of the log's segments. Their numbers tell them apart."""

    def series(self) -> list[Series]:
        """Return what the bucket has, the oldest series first.

        Raises:
            StoreError: the bucket cannot be listed.
        """
        found: dict[str, Series] = {}
        for listed in self._objects.listing(self._below):
            name, _slash, rest = listed.key.removeprefix(self._below).partition("/")
            if _SERIES.fullmatch(name):
                _sort(found.setdefault(name, Series(name)), rest, listed)
        for series in found.values():
            series.log.sort(key=lambda segment: segment[:2])
        return [found[name] for name in sorted(found)]

    def series_names(self) -> list[str]:
        """Return the names of what ``series`` returns, with a request for each.

        Raises:
            StoreError: the bucket cannot be listed.
        """
        names: list[str] = []
        after = ""
        while True:
            listed = self._objects.listing(self._below, after)
            # A store that begins too early must not hide the last series.
            key = next((one.key for one in listed if one.key > after), None)
            if key is None:
                return names
            name = key.removeprefix(self._below).partition("/")[0]
            if _SERIES.fullmatch(name):
                names.append(name)
            # The character after the slash: nothing of the series comes after that.
            after = f"{self._below}{name}0"

    def has_later(self, series: str, row: int, number: int) -> bool:
        """Return whether the log of a series has changes that the database does not know.

        Segments whose answer was lost are left out: another one follows that tells of the same
        changes. They are those of this object, and those of earlier processes: their numbers were
        in the database before they were put.

        Args:
            series: its name.
            row: the row of the journal up to which the log was recorded.
            number: the last number that the database has.

        Returns:
            Whether it has.

        Raises:
            StoreError: the bucket cannot be listed.
        """
        below = f"{self._below}{series}/log/"
        names = (
            listed.key.removeprefix(below)
            for listed in self._objects.listing(below, f"{below}{row:020d}")
        )
        return any(
            int(match[2]) > row and not (int(match[1]) == row and int(match[3]) <= number)
            for name in names
            if (match := _LOG.fullmatch(name)) and match[4] != self._token
        )

    def has_base(self, series: str, after: int) -> bool:
        """Return whether a series has the document of a base.

        Args:
            series: its name.
            after: the row of the journal after which the log continues the base.

        Returns:
            Whether it is there.

        Raises:
            StoreError: the bucket cannot be listed.
        """
        below = f"{self._below}{series}/base/{after:020d}-"
        return any(listed.key.endswith(DOCUMENT) for listed in self._objects.listing(below))

    def put_log(self, series: str, after: int, upto: int, number: int, body: bytes) -> None:
        """Put a segment of the log.

        Raises:
            StoreError: it may be there all the same.
        """
        name = f"{after:020d}-{upto:020d}-{number:010d}-{self._token}{SUFFIX}"
        self._objects.put(f"{self._below}{series}/log/{name}", body)

    def put_part(self, series: str, base: str, number: int, body: bytes) -> tuple[str, int]:
        """Put a segment of a base. Returns its name and its size in bytes.

        Raises:
            StoreError: it may be there all the same.
        """
        name = f"{number:06d}{SUFFIX}"
        self._objects.put(f"{self._below}{series}/base/{base}/{name}", body)
        return name, len(body)

    def put_document(self, series: str, document: BaseDocument) -> None:
        """Put the document of a base, which makes it one.

        Raises:
            StoreError: it may be there all the same.
        """
        text = json.dumps({"format": 1, **asdict(document)}, indent=1).encode() + b"\n"
        self._objects.put(f"{self._below}{series}/base/{document.name}{DOCUMENT}", text)

    def document(self, listed: ListedObject) -> BaseDocument:
        """Read the document of a base.

        Raises:
            BadSegment: it cannot be understood.
            StoreError: the bucket does not give it.
        """
        try:
            facts: dict[str, Any] = json.loads(self._objects.read(listed))
            facts.pop("format")
            segments = [(str(name), int(size)) for name, size in facts.pop("segments")]
            return BaseDocument(segments=segments, **facts)
        except (ValueError, KeyError, TypeError) as exc:
            raise BadSegment(f"{listed.key} cannot be understood: {exc}") from None

    def parts_of(self, series: Series, document: BaseDocument) -> list[ListedObject]:
        """Return the segments of a base, as the bucket has them.

        Raises:
            BadSegment: there is none, or one is missing or has another size.
        """
        if not document.segments:
            raise BadSegment(f"the base {document.name} has no segments")
        below = f"{self._below}{series.name}/base/{document.name}/"
        there = {listed.key: listed for listed in series.parts}
        parts = []
        for name, size in document.segments:
            listed = there.get(below + name)
            if listed is None or listed.size != size:
                has = "is missing" if listed is None else f"has {listed.size} bytes"
                raise BadSegment(f"{below}{name} {has}, {size} bytes expected")
            parts.append(listed)
        return parts

    def opened(self, listed: ListedObject) -> SegmentReader:
        """Read a segment.

        Raises:
            BadSegment: it does not begin as a segment does.
            StoreError: the bucket does not give it.
        """
        return SegmentReader(io.BytesIO(self._objects.read(listed)), listed.key)

    def each_opened(self, listed: Iterable[ListedObject]) -> Iterator[SegmentReader]:
        """Yield segments in their order. The next ones are asked for meanwhile.

        Raises:
            BadSegment, StoreError: as of ``opened``.
        """
        with ThreadPoolExecutor(READS_AHEAD, thread_name_prefix="names") as pool:
            asked: deque[Future[SegmentReader]] = deque()
            for one in listed:
                asked.append(pool.submit(self.opened, one))
                if len(asked) >= READS_AHEAD:
                    yield asked.popleft().result()
            while asked:
                yield asked.popleft().result()

    def delete(self, objects: Iterable[ListedObject]) -> int:
        """Delete objects of the copy. Returns how many.

        Raises:
            StoreError: some may be left.
        """
        keys = [listed.key for listed in objects]
        assert all(key.startswith(self._below) for key in keys), "only the copy is deleted here"
        self._objects.delete(keys)
        return len(keys)


def base_name(after: int) -> str:
    """Return a name for a base that no other has."""
    return f"{after:020d}-{secrets.token_hex(4)}"


def base_after_of(listed: ListedObject) -> int:
    """Return the row of the journal after which the log continues a base.

    Args:
        listed: its document, or one of its segments.
    """
    name = listed.key.rpartition("/base/")[2]
    return int(name[:20])


def series_name(there: Sequence[str]) -> str:
    """Return the name of a series that begins after all that are there."""
    last = max((int(name[:6]) for name in there), default=0)
    return f"{last + 1:06d}-{secrets.token_hex(4)}"


def _sort(series: Series, rest: str, listed: ListedObject) -> None:
    """Put an object of a series where it belongs. Anything else is left out.

    Args:
        rest: its key below the series.
    """
    kind, _slash, name = rest.partition("/")
    if kind == "log" and (match := _LOG.fullmatch(name)):
        after, upto, number = (int(digits) for digits in match.groups()[:3])
        series.log.append(LogSegment(upto, number, after, listed))
    elif kind == "base":
        base, slash, _part = name.partition("/")
        if slash and _BASE.fullmatch(base):
            series.parts.append(listed)
        elif name.endswith(DOCUMENT) and _BASE.fullmatch(name.removesuffix(DOCUMENT)):
            series.documents.append(listed)
