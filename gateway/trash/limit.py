"""What has to go so that the trash is not larger than ``retention.trash_max_bytes``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gateway.trash.rows import Entry

TOO_LARGE = "the trash is larger than retention.trash_max_bytes"
"""The reason of such a removal."""


def surplus(
    entries: Sequence[Entry], max_bytes: int, may_go: Callable[[Entry], bool]
) -> Iterator[Entry]:
    """Yield the oldest entries without which the rest is not larger than the limit.

    Parameters: entries, all of the trash, the oldest first; max_bytes, the limit, 0 for none;
    may_go, asked right before an entry is yielded: one that stays counts on.
    """
    over = sum(one.size for one in entries) - max_bytes if max_bytes else 0
    for one in entries:
        if over <= 0:
            return
        if may_go(one):
            over -= one.size
            yield one
