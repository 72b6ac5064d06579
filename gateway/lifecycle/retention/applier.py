"""Applier of retention plans: the background task that deletes checkpoints and evicts files.

Right before a deletion the bucket and the namespace are asked, not the catalogue: the bucket must
have the newer checkpoint as recorded, that one must be durable now, the checkpoint to delete must
be as the plan saw it, and no person or job must have said otherwise since. An action is recorded
before and completed after. What a kill interrupts, the next plan finds.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Protocol

from gateway.cache.eviction import TOGETHER, Candidate, Candidates, EvictionVerdict, eviction_of
from gateway.cache.warming import REQUEST_WHOLE
from gateway.catalogue.store import catalogue_of
from gateway.common import clock, failpoints
from gateway.common.errors import NamespaceError, SpillwayError, StoreError, TrashRefused, UserError
from gateway.common.failpoints import RETENTION_ACTION
from gateway.common.text import printable
from gateway.common.types import InodeKind
from gateway.config.settings import Settings
from gateway.db.compiled import Session, numbers_of, rows_of
from gateway.db.engine import Database
from gateway.lifecycle.promotion.store import protected
from gateway.lifecycle.retention import store
from gateway.lifecycle.retention.facts import Decision, Pinned, PlanCheckpoint
from gateway.lifecycle.retention.guard import DeletionGuard, Heads, is_unchanged
from gateway.lifecycle.retention.planning import Planned, Planning
from gateway.lifecycle.retention.references import References
from gateway.lifecycle.retention.transitions import Transitions
from gateway.namespace import identity
from gateway.namespace.lookup import Browser
from gateway.rpc import control


class UnusedFiles:
    """Evicts files of checkpoints, as ``spillway evict`` does."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database

    def candidates(self, ino: int, before_ns: int) -> list[Candidate]:
        """Return the files of a checkpoint that may leave the disk. Raises TryAgain.

        Args:
            ino: ino of the directory or file.
            before_ns: the time since which they were not used.
        """
        files: list[Candidate] = []
        with Browser(self._settings) as browser, self._database.reader() as connection:
            candidates = Candidates(Session(connection, self._database.dialect), self._settings)
            inos = _files(browser, ino)
            while page := list(islice(inos, TOGETHER)):
                for candidate in candidates.given(rows_of([(ino,) for ino in page])).values():
                    if (
                        candidate.used_ns < before_ns
                        and candidates.reason_against(candidate) is None
                    ):
                        files.append(candidate)
        return files

    def run(self, candidates: Sequence[Candidate]) -> Counter[EvictionVerdict]:
        """Evict files. Returns how many got which verdict. Raises UserError, StoreError,
        ControlSocketClosed, NamespaceError, OSError."""
        verdicts: Counter[EvictionVerdict] = Counter()
        remaining = iter(candidates)
        with (
            eviction_of(self._settings, self._database) as eviction,
            control.opened(self._settings, control.BACKGROUND_SECONDS) as opened,
        ):
            while batch := list(islice(remaining, TOGETHER)):
                verdicts.update(eviction.run(opened.run, batch))
        return verdicts


def _files(browser: Browser, ino: int) -> Iterator[int]:
    """Yield a file, or all files below a directory."""
    waiting = [ino]
    is_file = True
    while waiting:
        at = waiting.pop()
        for child in browser.entries(at):
            is_file = False
            if child.attr.kind == InodeKind.DIRECTORY:
                waiting.append(child.attr.ino)
            elif child.attr.kind == InodeKind.REGULAR:
                yield child.attr.ino
    if is_file:
        yield ino


log = logging.getLogger("retention")

PASS_SECONDS = 60.0
PAUSE_RATIO = 20
"""The pause after a pass takes this many times as long as the pass."""
OWN = ("trash", "evict")
"""The actions that are done here. Others end theirs: the drain, and the trash."""
PAUSE_SECONDS = 3600.0
"""A checkpoint that was refused, or that was looked at for evictions, waits for so long."""


class TrashTaker(Protocol):
    """Takes checkpoints out of the namespace, for a while."""

    def put(self, ino: int, path: bytes, evidence: str, by: str, reason: str) -> str:
        """Put a checkpoint into the trash. Returns its id there. Raises TrashRefused if it is not
        as expected, SpillwayError."""


class Interrupted(SpillwayError):
    """The plan is not carried out any further: the next pass plans again."""


class Applier:
    """Background task: plans, and applies the plan.

    Args:
        stop: after which it ends between two actions.
        heads: which may be shared.
    """

    name = "retention"

    def __init__(
        self,
        settings: Settings,
        database: Database,
        stop: threading.Event,
        trash: TrashTaker,
        heads: Heads,
    ) -> None:
        self._settings = settings
        self._database = database
        self._stop = stop
        self._trash = trash
        self._catalogue = catalogue_of(settings, database)
        self._planning = Planning(settings, self._catalogue)
        self._guard = DeletionGuard(settings, database, heads)
        self._references = References()
        self._unused = UnusedFiles(settings, database)
        self._transitions = Transitions(database, self._catalogue, stop)
        self._next_at = 0.0
        self._is_tidy = False
        self._pauses: dict[tuple[str, str], float] = {}
        """Monotonic seconds until which checkpoints wait, by action and evidence."""
        self._warned = ""
        self._silent = ""
        """Why the bucket did not say what it has, at the last pass."""

    def run_once(self) -> float:
        """Plan, and do what the plan says. Returns the seconds until the next pass. Raises
        NamespaceError."""
        started = clock.monotonic_seconds()
        if started < self._next_at:
            # The catalogue tells of every save: a plan for each would read all rows each second.
            return self._next_at - started
        warning = ""
        try:
            self._pass()
        except Interrupted as exc:
            warning = str(exc)
        except NamespaceError:
            raise
        except (SpillwayError, OSError) as exc:
            # The disk may not be mounted, or the database be an older one.
            warning = f"nothing is deleted, evicted or moved now: {exc}"
        if warning and warning != self._warned:
            log.warning("%s", warning)
        self._warned = warning
        now = clock.monotonic_seconds()
        self._pauses = {
            pause_key: until for pause_key, until in self._pauses.items() if until > now
        }
        self._next_at = now + max(PASS_SECONDS, PAUSE_RATIO * (now - started))
        return self._next_at - now

    def _pass(self) -> None:
        """Do one pass. Raises Interrupted, SpillwayError, OSError."""
        if not self._is_tidy:
            self._finish_interrupted()
        planned = self._planning.plan()
        if not planned.policies and planned.known is None:
            return
        self._save(planned)
        plan = planned.plan
        if planned.admitted or plan.evictions or plan.transitions:
            identity.require_surroundings(self._settings)
        why = self._delete_all(planned)
        if why and why != self._silent:
            log.warning("nothing is deleted now: %s", why)
        self._silent = why
        for decision in plan.evictions:
            if self._stop.is_set():
                return
            self._evict(decision, planned)
        self._transitions.run_once(planned)

    def _save(self, planned: Planned) -> None:
        """Record the known time, the plan that is asked about, what need not be uploaded, and the
        files to be read."""
        asked = planned.asked
        with self._database.reader() as connection:
            session = Session(connection, self._database.dialect)
            known = store.approvals(session)
            is_other = store.superseded_inodes(session) != planned.superseded
        tokens = frozenset(deletion.token for deletion in planned.plan.deletions)
        waiting = [row.plan for row in known if row.approved_ns is None]
        is_news = waiting[:1] != ([] if asked is None else [asked.plan])
        is_news |= any(row.approved_ns and not row.tokens & tokens for row in known)
        if asked is not None and is_news:
            log.warning("%s: see spillway policy plan", asked.why)
        wanted = self._planning.wanted
        is_due = clock.is_due(planned.known, planned.time)
        if not (is_news or is_due or wanted or is_other):
            return
        with self._database.writing() as session:
            if is_due:
                store.save_time(session, planned.time)
            if is_news:
                store.ask(session, asked, tokens)
            if is_other:
                store.supersede(session, planned.superseded)
            if wanted:
                session.run(REQUEST_WHOLE, inos=numbers_of(wanted), now_ns=clock.now_ns())

    def _delete_all(self, planned: Planned) -> str:
        """Delete what may be. Returns why the bucket did not say what it has. Empty: it did. Raises
        Interrupted, NamespaceError."""
        for decision in planned.admitted:
            if self._stop.is_set():
                break
            try:
                self._delete(decision, planned)
            except StoreError as exc:
                return str(exc)
        return ""

    def _delete(self, decision: Decision, planned: Planned) -> None:
        """Delete a checkpoint. Raises Interrupted, NamespaceError, StoreError."""
        checkpoint, newer = decision.checkpoint, decision.successor
        if newer is None or self._waits("trash", checkpoint) or self._waits("stand", newer):
            return
        author = ", ".join(decision.policies)
        unfit = self._guard.unfit(newer)
        if unfit is not None and unfit.is_loss:
            # The next plans would ask the bucket for it again and again.
            self._wait("stand", newer)
            log.error("%s stays: %s", printable(checkpoint.path), unfit.why)
            with self._acting("trash", decision, author, decision.why) as end:
                end(f"refused: {unfit.why}")
            return
        why = self._not_as_planned(checkpoint, planned) if unfit is None else unfit.why
        if why is not None:
            log.info("%s stays for now: %s", printable(checkpoint.path), why)
            return
        with self._acting("trash", decision, author, decision.why) as end:
            try:
                trashed = self._trash.put(
                    checkpoint.ino, checkpoint.path, checkpoint.evidence, author, decision.why
                )
            except TrashRefused as exc:
                self._wait("trash", checkpoint)
                end(f"refused: {exc}")
            else:
                end(f"in the trash as {trashed}")

    def _not_as_planned(self, checkpoint: PlanCheckpoint, planned: Planned) -> str | None:
        """Return why a checkpoint must not be deleted now, or None. Raises Interrupted."""
        with self._catalogue.viewing() as view:
            if store.current(view.session) != list(planned.policies):
                raise Interrupted("a policy was changed")
            if view.session.one(store.IS_MADE) is None:
                raise Interrupted("the catalogue is made again")
            kept = protected(view.session)
            referred = self._references.of(view, [checkpoint]).get(checkpoint.ino)
        if checkpoint.ino in kept.inos or Pinned(kept.paths).holds(checkpoint.path):
            return "it is promoted or pinned"
        if referred is not None:
            return referred
        return None if is_unchanged(self._catalogue, checkpoint) else "it is not as it was"

    def _evict(self, decision: Decision, planned: Planned) -> None:
        """Evict what was not used of a checkpoint. Raises NamespaceError."""
        checkpoint, author = decision.checkpoint, decision.evict or ""
        if self._waits("evict", checkpoint):
            return
        self._wait("evict", checkpoint)
        after_ns = max(
            current.policy.evict_after_ns or 0
            for current in planned.policies
            if str(current) in author.split(", ")
        )
        candidates = self._unused.candidates(checkpoint.ino, planned.time.now_ns - after_ns)
        if not candidates:
            return
        hours = after_ns / 3600 / clock.NS
        reason = f"it is durable and was not used for {hours:g} hours"
        with self._acting("evict", decision, author, reason) as end:
            verdicts = self._unused.run(candidates)
            end(", ".join(f"{count} files {verdict}" for verdict, count in verdicts.items()))

    @contextmanager
    def _acting(
        self, verb: str, decision: Decision, author: str, reason: str
    ) -> Iterator[Callable[[str], None]]:
        """Record that an action begins, and, by what is yielded, how it ended."""
        self._is_tidy = False
        checkpoint = decision.checkpoint
        with self._database.writing() as session:
            action = store.begin(session, verb, checkpoint, author, reason, checkpoint.evidence)
        _hit("begun")

        def end(result: str) -> None:
            _hit("done")
            with self._database.writing() as session:
                store.end(session, action, result)
            _hit("ended")
            log.info("%s: %s: %s", printable(checkpoint.path), reason, result)

        try:
            yield end
        except (UserError, StoreError, OSError) as exc:
            end(f"failed: {exc}")
            raise
        self._is_tidy = True

    def _finish_interrupted(self) -> None:
        """Complete the actions of a process that was killed: the plan says what is left."""
        with self._database.reader() as connection:
            left = store.unfinished(Session(connection, self._database.dialect))
        for action in left:
            if action.what not in OWN:
                continue
            now = self._catalogue.look(action.ino).now
            is_there = now is not None and now.path == action.path
            place = "it is still there" if is_there else "it is not at its path any more"
            with self._database.writing() as session:
                store.end(session, action.id, f"interrupted: {place}")
        self._is_tidy = True

    def _waits(self, action: str, checkpoint: PlanCheckpoint) -> bool:
        return (action, checkpoint.evidence) in self._pauses

    def _wait(self, action: str, checkpoint: PlanCheckpoint) -> None:
        self._pauses[action, checkpoint.evidence] = clock.monotonic_seconds() + PAUSE_SECONDS


def _hit(when: str) -> None:
    failpoints.hit_counted(RETENTION_ACTION.format(when=when))
