"""Comparison of names and bucket: what is at each key, and which files lack their object.

It changes nothing, and may run beside a living gateway. The object is asked for before the rows are
read once more: an object that the gateway has just sent has its intent or its row by then, and one
that it deleted has none any more. What is still different is reported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlalchemy import and_, func, literal_column, select

from gateway.common.errors import ObjectRefused
from gateway.common.types import InodeKind
from gateway.config.settings import Settings
from gateway.db.compiled import Session, Statement, b, given, rows_of
from gateway.db.engine import Database
from gateway.db.statements import (
    VOLUME,
    TombstoneRow,
    damage,
    inode,
    last_read,
    manifest,
    object_,
    transition,
    upload,
)
from gateway.drain import statements as own
from gateway.drain.tidy.garbage import covered_inodes
from gateway.objectstore.metadata import ObjectOrigin, origin_of
from gateway.objectstore.objects import Head, ListedObject
from gateway.objectstore.s3 import S3Store
from gateway.recovery import reconcile_rules as rules
from gateway.recovery.bucket_scan import BucketScan, ScannedRow, ScanPage, rows_at
from gateway.recovery.reconcile_rules import Case, FileState, KeyPlace

HEADS = 16
"""The objects that are asked for at a time."""
ATTEMPTS = 5
REFUSED = Head(0, "", {}, opaque_etag=True)
"""Stands for an object of which the store tells us nothing."""

_OF_INODE = (
    "ino",
    "generation",
    "kind",
    "nlink",
    "size",
    "mtime_ns",
    "ctime_ns",
    "content_version",
    "drained_version",
    "write_open",
    "epoch",
    "residency",
    "reserved",
)
_STATE = Statement(
    select(
        *(inode.c[name] for name in _OF_INODE),
        func.coalesce(last_read.c.read_ns, literal_column("0")),
        damage.c.reason,
        object_.c.key,
        object_.c.content_version,
        object_.c.size,
        object_.c.etag,
    )
    .select_from(
        inode.outerjoin(last_read, last_read.c.ino == inode.c.ino)
        .outerjoin(damage, damage.c.ino == inode.c.ino)
        .outerjoin(object_, object_.c.ino == inode.c.ino)
    )
    .where(inode.c.ino == b("ino"))
)
_KEYS = given("keys", key=str)
_INTENTS_AT = Statement(
    select(upload.c.key, upload.c.ino, upload.c.content_version).select_from(
        _KEYS.join(upload, upload.c.key == _KEYS.c.key)
    )
)
_COPIES_AT = Statement(
    select(transition.c.key).select_from(
        _KEYS.join(
            transition, and_(transition.c.key == _KEYS.c.key, transition.c.until_ns.is_(None))
        )
    )
)
_MANIFESTS_AT = Statement(
    select(manifest.c.key).select_from(_KEYS.join(manifest, manifest.c.key == _KEYS.c.key))
)


class Compared(NamedTuple):
    """A key at which the bucket is not as its row says, or that has no row."""

    case: Case
    key: str
    row: ScannedRow | None
    """The row of the key. Of a replaced one another file's."""
    head: Head | None
    """None: there is no object, or it was not asked for."""
    stored_ns: int
    """When the object was stored; 0 without one."""
    is_path: bool = False
    """Whether the key is the path of a file."""

    @property
    def origin(self) -> ObjectOrigin:
        """Where the object came from."""
        return origin_of(self.head.metadata if self.head is not None else {})


@dataclass(slots=True)
class FoundPage:
    """What was found on a page."""

    findings: list[Compared] = field(default_factory=list)
    counts: dict[Case, int] = field(default_factory=dict)
    """What is not in the findings."""
    healed: list[ScannedRow] = field(default_factory=list)
    """The rows of objects that are there, of files that were found to lack them."""
    listed: int = 0

    def count(self, case: Case) -> None:
        """Count what needs no more."""
        self.counts[case] = self.counts.get(case, 0) + 1


class _Rows(NamedTuple):
    """What the database says of keys, read after the objects were asked for."""

    rows: Mapping[str, ScannedRow]
    tombstones: Mapping[str, set[TombstoneRow]]
    intents: Mapping[str, set[tuple[int, int]]]
    copies: Collection[str]
    manifests: Collection[str]
    heads: Mapping[str, Head | None]
    """What is at some keys."""


class BucketComparison:
    """One comparison.

    Args:
        settings: of the gateway.
        database: of the gateway.
        also_ours: ids of other namespaces whose objects are taken for this one's.
    """

    def __init__(
        self, settings: Settings, database: Database, also_ours: Collection[str] = ()
    ) -> None:
        self._database = database
        self._prefix = settings.bucket.prefix
        self._store = S3Store(settings, attempts=ATTEMPTS)
        self._scan = BucketScan(database, self._store, self._prefix)
        with database.reading() as session:
            row = session.one(VOLUME)
        assert row is not None, "the volume row is missing"
        self.volume = bytes(row[0]).hex()
        """The id of the namespace."""
        self.volumes = frozenset((self.volume, *also_ours))

    def pages(self) -> Iterator[FoundPage]:
        """Yield what is found at the keys that are listed. Raises StoreError, TryAgain."""
        with ThreadPoolExecutor(HEADS, thread_name_prefix="head") as pool:
            for page in self._scan.pages():
                yield self._found(pool, page)

    def lacking(self) -> Iterator[FoundPage]:
        """Yield which rows lack their object, after all ``pages``. Raises StoreError, TryAgain."""
        with ThreadPoolExecutor(HEADS, thread_name_prefix="head") as pool:
            for rows in self._scan.unlisted():
                yield self._lacking(pool, rows)

    def saw(self, ino: int) -> None:
        """Note that a file has its object, wherever it was found."""
        self._scan.saw(ino)

    def _found(self, pool: ThreadPoolExecutor, page: ScanPage) -> FoundPage:
        found = FoundPage(listed=len(page.listed))
        asked: list[tuple[ListedObject, KeyPlace]] = []
        for entry in page.listed:
            row = page.rows.get(entry.key)
            place = rules.place_of(self._prefix, entry.key, page.is_outside)
            if row is not None and row.names(entry.size, entry.etag):
                self._same(found, row)
            elif row is None and place is KeyPlace.OWN:
                found.count(Case.OWN)
            elif not (row is None and page.is_outside):
                asked.append((entry, place))
        keys = [entry.key for entry, _place in asked]
        heads = self._heads(pool, keys, page.rows)
        heads |= self._heads(pool, self._elsewhere(heads))
        with self._database.reading() as session:
            rows = _rows(session, keys, heads)
            for entry, place in asked:
                if (head := heads[entry.key]) is not None:
                    self._judge(session, found, entry, place, head, rows)
        return found

    def _elsewhere(self, heads: Mapping[str, Head | None]) -> list[str]:
        """Return the keys at which the files of some objects have theirs by their rows."""
        keys = set()
        with self._database.reading() as session:
            for head in heads.values():
                origin = origin_of({} if head is None else head.metadata)
                state = file_of(session, origin)
                if state is not None and state.stored_key is not None:
                    keys.add(state.stored_key)
        return list(keys - heads.keys())

    def _same(self, found: FoundPage, row: ScannedRow) -> None:
        self.saw(row.ino)
        found.count(Case.SAME)
        if row.damage is not None and row.damage.startswith(rules.DAMAGE):
            found.healed.append(row)

    def _heads(
        self,
        pool: ThreadPoolExecutor,
        keys: Sequence[str],
        recorded: Collection[str] | None = None,
    ) -> dict[str, Head | None]:
        """Ask for objects.

        Args:
            recorded: the keys that have rows. An object at another key may be refused: it is of
                another program, and no row depends on it. None: all of them.
        """

        def head(key: str) -> Head | None:
            try:
                return self._store.head(key, with_sum=True)
            except ObjectRefused:
                if recorded is None or key in recorded:
                    raise
                return REFUSED

        return dict(zip(keys, pool.map(head, keys), strict=True))

    def _judge(
        self,
        session: Session,
        found: FoundPage,
        entry: ListedObject,
        place: KeyPlace,
        head: Head,
        rows: _Rows,
    ) -> None:
        """Judge an object that was asked for."""
        key, row = entry.key, rows.rows.get(entry.key)
        finding = Compared(Case.SAME, key, row, head, entry.modified_ns, place is KeyPlace.FILE)
        if row is not None:
            case = self._against(session, row, head, rows)
            if case is not Case.REPLACED:
                self.saw(row.ino)
            if case is Case.SAME:
                self._same(found, row)
            elif case is Case.UNDER_WAY:
                found.count(case)
            elif case is not Case.REPLACED:
                found.findings.append(finding._replace(case=case))
            if case is not Case.REPLACED:
                return
            # The file of the row is judged when everything was listed. Here it is the object's.
        case = self._without_row(session, finding, place, rows)
        if case is Case.FOREIGN and row is not None:
            return
        if case in (Case.GARBAGE, Case.UNDER_WAY, Case.OWN):
            found.count(case)
            return
        if case is Case.MOVED and (ino := finding.origin.ino) is not None:
            self.saw(ino)
        found.findings.append(finding._replace(case=case))

    def _against(self, session: Session, row: ScannedRow, head: Head, rows: _Rows) -> Case:
        """Compare an object with the row of its key."""
        case = rules.against_row(head, row, self.volumes)
        if case is Case.SAME:
            return case
        if row.key in rows.copies:
            return Case.UNDER_WAY
        if case is Case.NEWER and self._is_sent(session, row.key, origin_of(head.metadata), rows):
            return Case.UNDER_WAY
        return case

    def _is_sent(self, session: Session, key: str, origin: ObjectOrigin, rows: _Rows) -> bool:
        """Return whether the drain sends this version to a key, or was interrupted at that."""
        if (origin.ino, origin.content_version) not in rows.intents.get(key, ()):
            return False
        state = file_of(session, origin)
        return state is not None and state.damage is None

    def _without_row(
        self, session: Session, finding: Compared, place: KeyPlace, rows: _Rows
    ) -> Case:
        """Judge an object that is not that of the row of its key."""
        head, key = finding.head, finding.key
        assert head is not None
        if place is KeyPlace.MANIFEST:
            is_ours = rules.manifest_ino(head, self.volumes) is not None
            is_known = key in rows.manifests
            return Case.OWN if is_known else Case.MANIFEST if is_ours else Case.FOREIGN
        origin = finding.origin
        if self._is_sent(session, key, origin, rows):
            return Case.UNDER_WAY
        if covered_inodes(head, rows.tombstones[key], self.volume):
            is_last = place is KeyPlace.FILE and self._is_last(session, origin, rows)
            return Case.MOVED if is_last else Case.GARBAGE
        if not rules.is_ours(origin, self.volumes):
            return Case.FOREIGN
        if place in (KeyPlace.PROMOTED, KeyPlace.OWN):
            return Case.PROMOTED if place is KeyPlace.PROMOTED else Case.OWN
        return self._of_file(session, key, origin, rows)

    def _is_last(self, session: Session, origin: ObjectOrigin, rows: _Rows) -> bool:
        """Return whether an object is all that is left of a file. A move has a tombstone for its
        copy until that is recorded, and may have deleted the source since."""
        state = file_of(session, origin)
        if state is None or not state.is_file or state.has_bytes:
            return False
        is_gone = state.stored_key is None or (
            state.stored_key in rows.heads and rows.heads[state.stored_key] is None
        )
        return is_gone and rules.version_of(origin) >= (state.stored_version or 0)

    def _of_file(self, session: Session, key: str, origin: ObjectOrigin, rows: _Rows) -> Case:
        """Judge an object of ours by where the object of its file is."""
        state = file_of(session, origin)
        if state is None or not state.is_file:
            return Case.UNKNOWN
        if state.stored_key is None or state.stored_version is None or state.stored_key == key:
            return Case.MOVED
        version = rules.version_of(origin)
        if version < state.stored_version:
            return Case.SECOND_COPY
        if state.stored_key not in rows.heads:
            return Case.UNDER_WAY  # it moved since its key was looked up
        stored = rows.heads[state.stored_key]
        if stored is None:
            return Case.MOVED
        stored_origin = origin_of(stored.metadata)
        is_recorded = (stored.size, stored.etag) == (state.stored_size, state.stored_etag)
        if not is_recorded and not (
            rules.is_ours(stored_origin, self.volumes) and state.is_of(stored_origin)
        ):
            return Case.MOVED
        newest = max(rules.version_of(stored_origin), state.stored_version if is_recorded else 0)
        return Case.MOVED if version > newest else Case.SECOND_COPY

    def _lacking(self, pool: ThreadPoolExecutor, unlisted: Sequence[ScannedRow]) -> FoundPage:
        found = FoundPage()
        heads = self._heads(pool, [row.key for row in unlisted])
        with self._database.reading() as session:
            rows = _rows(session, heads.keys(), heads)
            for row in unlisted:
                head = heads[row.key]
                if rows.rows.get(row.key) != row:
                    found.count(Case.UNDER_WAY)
                    continue
                case = Case.MISSING if head is None else self._against(session, row, head, rows)
                if case is Case.SAME:
                    self._same(found, row)
                elif case is Case.UNDER_WAY:
                    found.count(case)
                else:
                    found.findings.append(Compared(case, row.key, row, head, 0))
        return found


def state_of(session: Session, ino: int) -> FileState | None:
    """Return a file as the database knows it, or None if there is no such inode."""
    row = session.one(_STATE, ino=ino)
    return None if row is None or row[2] != InodeKind.REGULAR else FileState(*row)


def file_of(session: Session, origin: ObjectOrigin) -> FileState | None:
    """Return the file that metadata names, or None if there is no such one."""
    ino = rules.number_of(origin)
    state = None if ino is None else state_of(session, ino)
    return state if state is not None and state.is_of(origin) else None


def _rows(session: Session, keys: Collection[str], heads: Mapping[str, Head | None]) -> _Rows:
    given_keys = rows_of([(key,) for key in keys])
    tombstones: dict[str, set[TombstoneRow]] = {key: set() for key in keys}
    for row in session.all(own.TOMBSTONES_AT, keys=given_keys):
        tombstone = TombstoneRow(*row)
        tombstones[tombstone.key].add(tombstone)
    intents: dict[str, set[tuple[int, int]]] = {}
    for key, ino, version in session.all(_INTENTS_AT, keys=given_keys):
        intents.setdefault(key, set()).add((ino, version))
    copies = {key for (key,) in session.all(_COPIES_AT, keys=given_keys)}
    manifests = {key for (key,) in session.all(_MANIFESTS_AT, keys=given_keys)}
    return _Rows(rows_at(session, keys), tombstones, intents, copies, manifests, heads)
