"""Says when a plan deletes so much that a person must approve it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from gateway.retention.facts import Decision, Plan, id_of

FEW = 4
"""This many deletions need no approval: each of them obeys the laws, and the trash has them."""


class Asked(NamedTuple):
    """The deletions of a plan that a person must approve."""

    plan: str
    """Id of these deletions."""
    deletions: Sequence[Decision]
    why: str
    """One line, for people."""

    @property
    def size(self) -> int:
        return sum(one.checkpoint.size for one in self.deletions)


def split(
    plan: Plan, approved: Collection[str], share: float
) -> tuple[Sequence[Decision], Asked | None]:
    """Return the deletions that may be done, and those that must be approved first.

    Parameters: approved, the tokens of deletions that a person approved; share, that of the
    checkpoints or bytes under the policies above which deletions are asked about.
    """
    rest = [one for one in plan.deletions if one.token not in approved]
    why = _why(plan, rest, share)
    if why is None:
        return plan.deletions, None
    done = [one for one in plan.deletions if one.token in approved]
    return done, Asked(id_of([one.token for one in rest]), rest, why)


def _why(plan: Plan, rest: Sequence[Decision], share: float) -> str | None:
    if len(rest) <= FEW:
        return None
    sizes = {one.checkpoint.ino: one.checkpoint.size for one in plan.decisions}
    count, size = len(plan.selected), sum(sizes[ino] for ino in plan.selected)
    deleted_size = sum(one.checkpoint.size for one in rest)
    is_many = len(rest) > share * count
    if not is_many and deleted_size <= share * size:
        return None
    part = len(rest) / count if is_many else deleted_size / size
    what = "checkpoints" if is_many else "bytes"
    return f"it deletes {100 * part:.0f} % of the {what} under its policies"
