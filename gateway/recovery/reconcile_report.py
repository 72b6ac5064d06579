"""Report of a comparison of names and bucket: counts, some keys, and what became of each run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import select

from gateway.common.models import Model
from gateway.common.text import printable
from gateway.db.compiled import Session, Statement
from gateway.db.statements import checkpoint
from gateway.recovery.reconcile_rules import PROBLEMS, Case, Outcome

ENTRIES_MAX = 200
"""The keys of each case and outcome that a report names."""
RUNS_MAX = 10_000
REST = "(other runs)"
NOT_BACK = (
    "hard links, symbolic links, empty directories and the modes of directories are not in the "
    "bucket: what of them the database does not have is lost"
)

_RUNS = Statement(select(checkpoint.c.run).distinct())


@dataclass(frozen=True, slots=True)
class ComparedKey(Model):
    """A key at which the bucket is not as the names say."""

    key: str
    run: str
    """The run of its file, or the first directory of its path. Empty: not known."""
    case: str
    """What is at the key."""
    outcome: str
    """What became of it."""


@dataclass(frozen=True, slots=True)
class ComparedRun(Model):
    """What became of the files of a run."""

    run: str
    """The run, or the first directory of the paths."""
    lost: int
    """Files without bytes."""
    came_back: int
    """Files that the names did not have."""
    followed: int
    """Files of which the bucket has a newer version than the names had, or at another path."""
    sent_again: int
    """Files that are sent again from the local disk."""


@dataclass(frozen=True, slots=True)
class BucketReport(Model):
    """What a comparison found, and what it changed."""

    bucket: str
    prefix: str
    is_changed: bool
    """Whether the names were mended. Otherwise it says what would become of them."""
    asks_again: bool
    """Whether policies delete nothing before a person has approved it, because names changed."""
    listed: int
    """The objects that the bucket has."""
    cases: dict[str, int]
    """How often each case was found."""
    outcomes: dict[str, int]
    """How often each came of it."""
    runs: list[ComparedRun]
    """Those of which something is lost, came back, is another one or is sent again."""
    keys: list[ComparedKey]
    """The first keys of each case and outcome."""
    not_back: str | None
    """What cannot come back from a bucket alone, if objects became files again."""

    @property
    def lost(self) -> int:
        """The number of files without bytes."""
        return self.outcomes.get(Outcome.LOST, 0)

    @property
    def problems(self) -> int:
        """The number of files that no client could read from the bucket before a repair."""
        return sum(self.cases.get(case, 0) for case in PROBLEMS)

    @property
    def changes(self) -> int:
        """The number of files and objects whose rows changed, or would."""
        return sum(self.outcomes.values()) - self.outcomes.get(Outcome.LEFT, 0)


class RunFinder:
    """The runs of paths. It knows those of the catalogue, as it was when this was made."""

    def __init__(self, session: Session) -> None:
        runs = (tuple(bytes(run).split(b"/")) for (run,) in session.all(_RUNS) if run)
        self._runs = frozenset(runs)

    def of(self, parts: Sequence[bytes]) -> str:
        """Return the run of a path, or its first directory."""
        for count in range(len(parts) - 1, 0, -1):
            if tuple(parts[:count]) in self._runs:
                return printable(b"/".join(parts[:count]))
        return printable(parts[0]) if len(parts) > 1 else ""


class Judged(NamedTuple):
    """What was found at a key, and what becomes of it."""

    case: Case
    outcome: Outcome
    key: str
    parts: Sequence[bytes]
    """The path of the file. Empty: not known."""


_CAME_BACK = (Outcome.CAME_BACK, Outcome.NAMELESS)
_COLUMNS = {
    "lost": (Outcome.LOST,),
    "came_back": _CAME_BACK,
    "followed": (Outcome.FOLLOWED, Outcome.RECORDED, Outcome.KEPT_LOCAL),
    "sent_again": (Outcome.SENT_AGAIN,),
}


class Tally:
    """Counts what is found.

    Args:
        runs: which run a path belongs to.
    """

    def __init__(self, runs: RunFinder) -> None:
        self.listed = 0
        self.asks_again = False
        self._runs = runs
        self._cases: Counter[str] = Counter()
        self._outcomes: Counter[str] = Counter()
        self._by_run: Counter[tuple[str, Outcome]] = Counter()
        self._known_runs: set[str] = set()
        self._kinds: Counter[tuple[Case, Outcome]] = Counter()
        self._keys: list[ComparedKey] = []

    def count(self, case: Case, times: int = 1) -> None:
        """Count a case of which nothing comes."""
        self._cases[case] += times

    def add(self, judged: Iterable[Judged]) -> None:
        """Count what was judged."""
        for case, outcome, key, parts in judged:
            if outcome is not Outcome.SET_BESIDE:
                self._cases[case] += 1
            self._outcomes[outcome] += 1
            run = self._runs.of(parts)
            if run not in self._known_runs and len(self._known_runs) >= RUNS_MAX:
                run = REST
            self._known_runs.add(run)
            self._by_run[run, outcome] += 1
            self._kinds[case, outcome] += 1
            if self._kinds[case, outcome] <= ENTRIES_MAX:
                self._keys.append(ComparedKey(key, run, case, outcome))

    def report(self, bucket: str, prefix: str, is_changed: bool) -> BucketReport:
        """Return what was counted."""
        runs = []
        for run in sorted(self._known_runs):
            counts = {
                name: sum(self._by_run[run, outcome] for outcome in outcomes)
                for name, outcomes in _COLUMNS.items()
            }
            if any(counts.values()):
                runs.append(ComparedRun(run, **counts))
        has_come_back = any(self._outcomes[outcome] for outcome in _CAME_BACK)
        return BucketReport(
            bucket=bucket,
            prefix=prefix,
            is_changed=is_changed,
            asks_again=self.asks_again,
            listed=self.listed,
            cases={str(case): count for case, count in sorted(self._cases.items())},
            outcomes={str(outcome): count for outcome, count in sorted(self._outcomes.items())},
            runs=runs,
            keys=self._keys,
            not_back=NOT_BACK if has_come_back else None,
        )
