"""Forked processes that a failpoint kills, for crash tests of the namespace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.forking import context


def run(target: Callable[..., None], *args: Any) -> int:
    process = context.Process(target=target, args=args)
    process.start()
    process.join(60)
    assert process.exitcode is not None
    return process.exitcode
