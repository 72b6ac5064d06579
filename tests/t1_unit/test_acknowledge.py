"""The rules that say which files a client waits for until the bucket has them."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.config import checks
from gateway.config.acknowledge import Acknowledge

RULES: tuple[dict[str, Any], ...] = (
    {"path": "jobs/a/debug", "acknowledge": "local"},
    {"path": "jobs/*/final?"},
    {"path": "{run}/step-{step}", "every_steps": 100},
    {"path": "{run}/step-{step}", "acknowledge": "local"},
    {"path": "{run}/*.pt"},
)


@pytest.mark.parametrize(
    ("path", "covered"),
    [
        ("jobs/a/final1", True),
        ("jobs/a/final1/deep/below/x", True),
        ("jobs/a/b/final1", False),  # * stays within one name
        ("jobs/a/final", False),
        ("jobs/a/debug/x.pt", False),  # the first rule that fits counts
        ("jobs/a/debugger/x.pt", True),
        ("deep/run/step-1200/model/x", True),
        ("deep/run/step-1200/model/x.tmp", False),  # held
        ("deep/run/step-1200/.tmp-1/x", False),  # held by a directory above
        ("deep/run/step-1201/x.pt", False),  # the exception that follows
        ("step-100/x", False),  # no run
        ("x", False),
    ],
)
def test_the_first_rule_that_fits_counts(path: str, covered: bool) -> None:
    assert checks.acknowledge_rules(RULES) is None
    rules = Acknowledge(RULES, ["*.tmp", ".tmp-*"])
    assert rules.covers(path.encode().split(b"/")) == covered


def test_without_a_rule_about_the_bucket_nothing_is_asked() -> None:
    assert not Acknowledge((), ())
    assert not Acknowledge(RULES[:1], ())
    assert Acknowledge(RULES, ())


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({}, "must have a path"),
        ({"path": "/absolute"}, "must have a path below the export"),
        ({"path": "{run}/{run}"}, "at most once"),
        ({"path": "a", "every_steps": 2}, "must have {step} in its path"),
        ({"path": "{step}", "every_steps": 0}, "every_steps of at least 1"),
        ({"path": "{step}", "every_steps": True}, "every_steps of at least 1"),
        ({"path": "a", "acknowledge": "both"}, 'acknowledge = "bucket" or "local"'),
        ({"path": "a", "step": 2}, "has the key step"),
    ],
)
def test_a_wrong_rule_is_refused(rule: dict[str, Any], problem: str) -> None:
    said = checks.acknowledge_rules(({"path": "good"}, rule))
    assert said is not None
    assert "number 2" in said
    assert problem in said
