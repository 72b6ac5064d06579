"""Each line that `spillway up` prints for people has the time, once."""

from __future__ import annotations

import re

import pytest

from gateway.common import logs

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"


def said(capsys: pytest.CaptureFixture[str], text: str, has_times: bool = False) -> str:
    logs.Output(has_times=has_times).say("drain", text)
    return capsys.readouterr().out


def test_a_line_without_a_time_gets_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert re.fullmatch(rf"{TIME} drain: started\n", said(capsys, "started", has_times=True))


def test_a_line_with_a_time_keeps_it_in_front(capsys: pytest.CaptureFixture[str]) -> None:
    text = "2026-11-29 09:30:00,123 INFO the bucket is reachable"
    told = "2026-11-29 09:30:00,123 drain: INFO the bucket is reachable\n"
    assert said(capsys, text, has_times=True) == told


def test_lines_for_systemd_have_none_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "started") == "drain: started\n"
