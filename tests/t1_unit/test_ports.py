"""Tests that run at the same time use different ports."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ports
from tests.support.checkout import ROOT

GIVEN = 300
PRINT = f"from tests.support.ports import free_port\nfor _ in range({GIVEN}): print(free_port())"


def test_no_port_is_given_twice() -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", PRINT], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    given = [int(line) for process in processes for line in process.communicate()[0].split()]
    assert len(set(given)) == 2 * GIVEN


def test_a_port_in_use_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ports.free_port()
    monkeypatch.setattr(ports, "PORTS", range(first, first + 3))
    monkeypatch.setattr(ports, "LAST", tmp_path / "last")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", first))
        assert {ports.free_port() for _ in range(6)} <= {first + 1, first + 2}
