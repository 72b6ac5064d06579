"""Which conditions of a request a store heeds.

Stores differ: one ignores a condition and overwrites what is there, another one refuses every
request that has it. So a condition is trusted only after the store was seen to heed it
(ownerstore.py asks).
"""

from __future__ import annotations

from enum import StrEnum

ABSENT = "*"
"""Nothing is expected at a key (If-None-Match: *). An ETag, without quotes, expects that object."""


class Conditions(StrEnum):
    """What was seen of a store. Each member also has what the one before it has."""

    NONE = "none"
    """It heeds none that helps."""
    CREATE = "create"
    """PutObject with If-None-Match: * replaces nothing."""
    REPLACE = "replace"
    """PutObject with If-Match replaces that object and no other."""

    @property
    def creates(self) -> bool:
        return self is not Conditions.NONE

    @property
    def replaces(self) -> bool:
        return self is Conditions.REPLACE

    def header(self, expected: str | None) -> dict[str, str]:
        """Return the header of a PUT that expects something at its key (ABSENT or an ETag), or
        nothing if the store does not heed it, or nothing is expected."""
        if expected == ABSENT:
            return {"If-None-Match": "*"} if self.creates else {}
        return {"If-Match": f'"{expected}"'} if expected and self.replaces else {}
