"""What a policy may say, and what its errors name."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from gateway.common.errors import PolicyError
from gateway.lifecycle.retention import policy
from gateway.lifecycle.retention.policy import DAY_NS, HOUR_NS, Best, Tier

WHOLE = """
[[policy]]
name = "llama"
run = "jobs/llama*"
path = "jobs/*/step-*"
keep_newest = 3
keep_every_steps = 1000
keep_best = {number = 2, file = "eval/metrics.json", key = "loss", best = "min"}
thin = [{older_than_days = 1, one_per_hours = 1}, {older_than_days = 7, one_per_hours = 24}]
delete_after_days = 30
wait_hours = 0.5
evict_after_hours = 6
approve = "automatic"
"""
BEST: dict[str, object] = {"number": 1, "file": "m.json", "key": "k", "best": "max"}


def test_everything_is_read() -> None:
    (read_policy,) = policy.read(tomllib.loads(WHOLE))
    assert read_policy.keep_best == Best(2, "eval/metrics.json", "loss", "min", "keep")
    assert read_policy.thin == (Tier(DAY_NS, HOUR_NS), Tier(7 * DAY_NS, DAY_NS))
    assert (read_policy.keep_newest, read_policy.keep_every_steps) == (3, 1000)
    assert (read_policy.delete_after_ns, read_policy.wait_ns) == (30 * DAY_NS, HOUR_NS // 2)
    assert read_policy.evict_after_ns == 6 * HOUR_NS
    assert read_policy.approve == "automatic"
    assert not read_policy.is_by_age
    assert read_policy.selects(b"jobs/llama-7b", b"jobs/llama-7b/step-1")
    assert not read_policy.selects(b"jobs/llama-7b", b"jobs/llama-7b/other")
    assert not read_policy.selects(b"jobs/gpt", b"jobs/gpt/step-1")
    assert policy.of(dict(read_policy.document)) == read_policy


def test_what_a_policy_does_not_say() -> None:
    (read_policy,) = policy.read({"policy": [{"name": "a", "run": "*", "evict_after_hours": 1}]})
    assert not read_policy.deletes
    assert read_policy.wait_ns == HOUR_NS
    assert read_policy.approve == "first"
    assert read_policy.selects(b"any\xff", b"thing\xfe/below")
    for key, value in {
        "keep_newest": 1,
        "keep_every_steps": 5,
        "keep_best": BEST,
        "thin": [{"older_than_days": 0, "one_per_hours": 1}],
        "delete_after_days": 0.5,
    }.items():
        made = policy.of({"name": "a", "run": "*", key: value})
        assert made.deletes, key
        assert made.is_by_age == (key == "delete_after_days")
        both = policy.of({"name": "a", "run": "*", key: value, "delete_after_days": 1})
        assert both.is_by_age == (key == "delete_after_days")


@pytest.mark.parametrize(
    ("table", "error"),
    [
        ({"name": "A", "run": "*"}, 'name = "our-runs"'),
        ({"run": "*"}, "name = None"),
        ({"run": "*", "keep": 3}, "policy a: keep: no such key; there are name, run, path, keep_"),
        ({"keep_newest": 3}, "policy a: must say which checkpoints"),
        ({"run": "*"}, "says nothing to do: it needs one of keep_newest"),
        ({"run": 7, "keep_newest": 1}, "run = 7: must be a string"),
        ({"path": "", "keep_newest": 1}, "path = '': must not be empty"),
        ({"run": "*", "keep_newest": 0}, "keep_newest = 0: must be between 1 and"),
        ({"run": "*", "keep_newest": True}, "keep_newest = True: must be a whole number"),
        ({"run": "*", "keep_newest": 1.5}, "keep_newest = 1.5: must be a whole number"),
        ({"run": "*", "keep_every_steps": -5}, "keep_every_steps = -5: must be between"),
        ({"run": "*", "delete_after_days": 0}, "delete_after_days = 0: must be between 0.001"),
        ({"run": "*", "delete_after_days": float("nan")}, "delete_after_days = nan"),
        ({"run": "*", "evict_after_hours": "6h"}, "evict_after_hours = '6h': must be a number"),
        ({"run": "*", "evict_after_hours": 1, "wait_hours": 1}, "wait_hours: deletes nothing"),
        ({"run": "*", "evict_after_hours": 1, "approve": "first"}, "approve: deletes nothing"),
        ({"run": "*", "approve": "first"}, "says nothing to do"),
        ({"run": "*", "keep_newest": 1, "approve": "no"}, "must be one of first, automatic"),
        (
            {"run": "*", "storage_class": "GLACIER", "transition_after_days": 30},
            "storage_class = 'GLACIER': its objects cannot be read at once",
        ),
        ({"run": "*", "storage_class": "COLD"}, "storage_class = 'COLD': must be one of"),
        ({"run": "*", "storage_class": "GLACIER_IR"}, "storage_class and transition_after_days go"),
        ({"run": "*", "transition_after_days": 3}, "storage_class and transition_after_days go"),
        ({"run": "*", "keep_best": 3}, "keep_best = 3: must be a table"),
        ({"run": "*", "keep_best": {"number": 1}}, "keep_best.file: is missing"),
        ({"run": "*", "keep_best": {**BEST, "best": "low"}}, "keep_best.best = 'low': must be one"),
        ({"run": "*", "keep_best": {**BEST, "file": "../x"}}, "keep_best.file = '../x': must be a"),
        ({"run": "*", "keep_best": {**BEST, "file": "/x"}}, "keep_best.file = '/x'"),
        ({"run": "*", "keep_best": {**BEST, "file": "\ud800"}}, "must be a path in the checkpoint"),
        ({"run": "*", "keep_best": {**BEST, "number": 0}}, "keep_best.number = 0: must be"),
        ({"run": "*", "keep_best": {**BEST, "top": 1}}, "keep_best.top: no such key"),
        ({"run": "*", "keep_best": {**BEST, "unmeasured": "x"}}, "keep_best.unmeasured = 'x'"),
        ({"run": "*", "thin": []}, "thin = []: must be tables"),
        ({"run": "*", "thin": [3]}, "must be tables, like"),
        ({"run": "*", "thin": [{"older_than_days": 1}]}, "thin.one_per_hours: is missing"),
        (
            {"run": "*", "thin": [{"older_than_days": 1, "one_per_hours": 0}]},
            "thin.one_per_hours = 0: must be between",
        ),
        (
            {"run": "*", "thin": 2 * [{"older_than_days": 1, "one_per_hours": 2}]},
            "thin: older_than_days must grow",
        ),
    ],
)  # fmt: skip
def test_errors_name_policy_and_key(table: dict[str, Any], error: str) -> None:
    whole = table if "name" in table or error.startswith("name = N") else {"name": "a", **table}
    with pytest.raises(PolicyError) as raised:
        policy.read({"policy": [whole]})
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("document", "error"),
    [
        ({}, "has tables"),
        ({"policies": []}, "has tables"),
        ({"policy": {}}, "must be tables"),
        ({"policy": []}, "must be tables"),
        ({"policy": [3]}, "must be tables"),
        ({"policy": 2 * [{"name": "a", "run": "*", "keep_newest": 1}]}, "two policies .* a"),
    ],
)  # fmt: skip
def test_what_is_no_file_of_policies(document: Any, error: str) -> None:
    with pytest.raises(PolicyError, match=error):
        policy.read(document)
