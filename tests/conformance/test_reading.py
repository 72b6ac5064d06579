"""The conformance runs read the report of pynfs, and the list of expected failures."""

from __future__ import annotations

import pytest

from tests.conformance.pynfs import EXPECTED, read_expected
from tests.conformance.suite import Result, read_report

RULE = "*" * 50
REPORT = f"""\
MKDIR    st_create.testDir                                        : RUNNING
MKDIR    st_create.testDir                                        : PASS
{RULE}
MKDIR    st_create.testDir                                        : PASS
OPEN2    st_open.testCreateUncheckedFile                          : FAILURE
           Checking attrs on creation: For size
           expected 32, got 0
ACL0     st_acl.testACLsupport                                    : UNSUPPORTED
           FATTR4_ACL not supported
{RULE}
Command line asked for 3 of 678 tests
Of those: 0 Skipped, 1 Failed, 1 Warned, 1 Passed
"""


def test_outcomes_and_messages_are_read_from_the_final_report() -> None:
    report = read_report(REPORT)
    assert report == {
        "MKDIR": Result("PASS", ""),
        "OPEN2": Result("FAILURE", "Checking attrs on creation: For size expected 32, got 0"),
        "ACL0": Result("UNSUPPORTED", "FATTR4_ACL not supported"),
    }
    assert [code for code, result in report.items() if result.failed] == ["OPEN2"]


def test_a_run_without_a_report_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="no end"):
        read_report(REPORT.split(RULE)[0])


def test_every_expected_failure_has_a_version_and_a_reason() -> None:
    assert read_expected(EXPECTED.read_text(), release=4)


def test_an_expected_failure_may_be_of_one_release() -> None:
    text = "4.0 OPEN2 any reason\n4.0 LOCK20 6 other reason\n"
    assert read_expected(text, release=4) == {(0, "OPEN2"): "reason"}
    assert read_expected(text, release=6) == {
        (0, "OPEN2"): "reason",
        (0, "LOCK20"): "other reason",
    }


@pytest.mark.parametrize(
    "line", ["4.0 OPEN2", "OPEN2 any reason", "4.2 OPEN2 any reason", "4.0 OPEN2 6.5 reason"]
)
def test_an_incomplete_expectation_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match="line 1"):
        read_expected(line, release=6)
