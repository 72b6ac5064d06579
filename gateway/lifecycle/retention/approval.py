"""Approval of deletions: which ones of a plan a person must approve first. Pure.

A deletion is asked about:

- if a person has not yet approved deletions by this version of a policy that lets it go, unless the
  policy says ``approve = "automatic"``;
- if only a marker shows that the checkpoint was whole;
- with all others of its run, if they are more than a share of the run's checkpoints under the
  policies, or of their bytes. Up to FEW are not, if the run keeps at least as many. So a run of
  five is never reduced to one by surprise;
- with all others of a policy, if they are more than FEW, and more than that share of what the
  policy selects.

The shares do not count what was approved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from gateway.catalogue.facts import Grade
from gateway.common.text import printable
from gateway.lifecycle.retention.facts import Decision, Plan, PlanCheckpoint, id_of

FEW = 4
REASONS_SHOWN = 3


class Consent(NamedTuple):
    """What persons approved, and what needs no approval."""

    tokens: Collection[str] = frozenset()
    """The deletions that were approved."""
    versions: Collection[str] = frozenset()
    """The policies with their versions, as ``Current`` has them, whose plans need no approval for
    being the first."""


class AskedDeletions(NamedTuple):
    """The deletions of a plan that a person must approve."""

    plan: str
    """Id of these deletions."""
    deletions: Sequence[Decision]
    why: str
    """One line, for people."""

    @property
    def size(self) -> int:
        return sum(deletion.checkpoint.size for deletion in self.deletions)

    @property
    def policies(self) -> Sequence[str]:
        """The policies with their versions that an approval lets delete."""
        return sorted({name for deletion in self.deletions for name in deletion.policies})


class _Group(NamedTuple):
    """The checkpoints of which a share is counted."""

    what: str
    """One or two words and a name, for people."""
    rest: Sequence[Decision]
    """Its deletions that were not approved."""
    among: Sequence[PlanCheckpoint]
    """The checkpoints under policies that delete."""
    left: int
    """How many of those stay."""
    is_run: bool


def split(
    plan: Plan, consent: Consent, share: float, is_hold: bool = False
) -> tuple[Sequence[Decision], AskedDeletions | None]:
    """Return the deletions that may be done, and those that must be approved first.

    Args:
        consent: what was approved.
        share: share of checkpoints or bytes above which deletions are asked about.
        is_hold: whether the files are only held back until the deletions are planned again: then a
            few are, whatever the run keeps.
    """
    rest = [deletion for deletion in plan.deletions if deletion.token not in consent.tokens]
    asked: set[int] = set()
    reasons: dict[str, None] = {}
    for decision in rest:
        for why in _alone(decision, consent):
            asked.add(decision.checkpoint.ino)
            reasons.setdefault(why)
    for group in _groups(plan, rest):
        if (over := _over(group, share, is_hold)) is not None:
            asked |= {decision.checkpoint.ino for decision in group.rest}
            reasons.setdefault(over)
    if not asked:
        return plan.deletions, None
    waiting = [decision for decision in rest if decision.checkpoint.ino in asked]
    done = [deletion for deletion in plan.deletions if deletion.checkpoint.ino not in asked]
    return done, AskedDeletions(
        id_of([decision.token for decision in waiting]), waiting, _text(list(reasons))
    )


def _alone(decision: Decision, consent: Consent) -> Iterator[str]:
    """Yield why a deletion is asked about whatever else goes."""
    for name in decision.policies:
        if name not in consent.versions:
            yield f"no deletion by {name} was approved yet"
    if decision.checkpoint.grade == Grade.MARKED:
        yield f"only a marker shows that {printable(decision.checkpoint.path)} is whole"


def _groups(plan: Plan, rest: Sequence[Decision]) -> Iterator[_Group]:
    runs: dict[bytes, list[Decision]] = {}
    policies: dict[str, list[Decision]] = {}
    for decision in rest:
        runs.setdefault(decision.checkpoint.run, []).append(decision)
        for name in decision.policies:
            policies.setdefault(name, []).append(decision)
    of_run: Mapping[bytes, list[PlanCheckpoint]] = {run: [] for run in runs}
    of_policy: Mapping[str, list[PlanCheckpoint]] = {name: [] for name in policies}
    gone = {deletion.checkpoint.ino for deletion in plan.deletions}
    for decision in plan.decisions:
        checkpoint = decision.checkpoint
        names = plan.selected.get(checkpoint.ino, ())
        if names and checkpoint.run in of_run:
            of_run[checkpoint.run].append(checkpoint)
        for name in names:
            if name in of_policy:
                of_policy[name].append(checkpoint)

    def left(among: Sequence[PlanCheckpoint]) -> int:
        return sum(plan_checkpoint.ino not in gone for plan_checkpoint in among)

    for run, mine in runs.items():
        group, among = f"of run {printable(run) or '/'}", of_run[run]
        yield _Group(group, mine, among, left(among), is_run=True)
    for name, mine in policies.items():
        among = of_policy[name]
        yield _Group(f"under {name}", mine, among, left(among), is_run=False)


def _over(group: _Group, share: float, is_hold: bool) -> str | None:
    """Return why a person must approve what a group loses, or None."""
    count = len(group.rest)
    if count <= FEW and (is_hold or not group.is_run or group.left >= count):
        return None
    size = sum(checkpoint.size for checkpoint in group.among)
    deleted_size = sum(decision.checkpoint.size for decision in group.rest)
    is_many = count > share * len(group.among)
    if not is_many and deleted_size <= share * size:
        return None
    part = count / len(group.among) if is_many else deleted_size / size
    unit = "checkpoints" if is_many else "bytes"
    return f"it deletes {100 * part:.0f} % of the {unit} {group.what}"


def _text(reasons: Sequence[str]) -> str:
    more = len(reasons) - REASONS_SHOWN
    shown = list(reasons[:REASONS_SHOWN])
    return "; ".join([*shown, f"and {more} more reasons"] if more > 0 else shown)
