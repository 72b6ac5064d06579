"""A policy as requests have it. ``gateway.retention.policy`` has the meaning and the last word."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from admin_api.shapes import Body, Storable
from gateway.retention import policy
from gateway.retention.policy import Policy

NAME = f"^{policy.NAME.pattern}$"
_YEARS = 36_500
"""Days: the oldest age."""

Pattern = Annotated[str, Field(min_length=1, max_length=4096), Storable]
Count = Annotated[int, Field(ge=1, le=10**6)]
StorageClass = Literal["STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR"]


class KeepBest(Body):
    """Keeps the best checkpoints by a number in a JSON file of each."""

    number: Count
    file: Annotated[str, Field(min_length=1, max_length=4096, examples=["metrics.json"]), Storable]
    key: Annotated[str, Field(min_length=1, max_length=1024, examples=["eval.loss"]), Storable]
    best: Literal["min", "max"]
    unmeasured: Literal["keep", "delete"] = Field(
        "keep", description="What becomes of a checkpoint without this number."
    )


class Tier(Body):
    """Keeps one checkpoint for each interval, among those that are older than an age."""

    older_than_days: float = Field(ge=0, le=_YEARS, allow_inf_nan=False)
    one_per_hours: float = Field(ge=0.01, le=24 * _YEARS, allow_inf_nan=False)


class PolicyDocument(Body):
    """A policy: which checkpoints, by `run`, `path` or both, and what becomes of them.

    Without a keep, `thin` or `delete_after_days` it deletes nothing. Each keep holds some
    checkpoints; what none holds is deleted.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "newest-three", "run": "jobs/llama*", "keep_newest": 3}]
        }
    )
    name: str = Field(pattern=NAME, examples=["newest-three"])
    run: Pattern | None = Field(None, description="Pattern of runs.", examples=["jobs/llama*"])
    path: Pattern | None = Field(None, description="Pattern of paths.", examples=["scratch/*"])
    keep_newest: Count | None = Field(None, examples=[3])
    keep_every_steps: int | None = Field(None, ge=1, le=10**18, examples=[10_000])
    keep_best: KeepBest | None = None
    thin: list[Tier] | None = Field(None, min_length=1, max_length=100)
    delete_after_days: float | None = Field(None, ge=0.001, le=_YEARS, allow_inf_nan=False)
    wait_hours: float | None = Field(
        None,
        ge=0,
        le=24 * _YEARS,
        allow_inf_nan=False,
        description="For so long a newer one must have been durable. Default: 1.",
    )
    evict_after_hours: float | None = Field(None, ge=0, le=24 * _YEARS, allow_inf_nan=False)
    transition_after_days: float | None = Field(None, ge=0, le=_YEARS, allow_inf_nan=False)
    storage_class: StorageClass | None = Field(
        None, description="To which objects move after `transition_after_days`."
    )
    approve: Literal["first", "automatic"] | None = Field(
        None,
        description="first, the default: the first plan of each version waits for a person.",
    )

    def written(self) -> dict[str, Any]:
        """Return the document as a person writes it: what was not said is not in it."""
        return self.model_dump(exclude_unset=True, exclude_none=True)

    def policy(self) -> Policy:
        """Return what it means. Raises PolicyError."""
        return policy.of(self.written())


def policies_of(documents: list[PolicyDocument]) -> list[Policy]:
    """Return what documents mean. Raises PolicyError, also if two have one name."""
    if not documents:
        return []
    return policy.read({"policy": [one.written() for one in documents]})


def difference(sent: dict[str, Any], current: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Return the keys in which a policy that was sent differs from the one that is there."""
    there = current or {}
    return {
        key: {"sent": sent.get(key), "current": there.get(key)}
        for key in sorted({*sent, *there})
        if sent.get(key) != there.get(key)
    }
