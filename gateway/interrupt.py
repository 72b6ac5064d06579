"""Keeps an interrupt (Ctrl-C) that Python could not raise.

Python runs destructors and callbacks of the garbage collection between any two steps of a program.
An exception in one of them is printed and dropped, also the KeyboardInterrupt of a signal that came
at that moment. Without ``kept`` a command would continue as if the person had pressed nothing.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_dropped = threading.Event()


@contextmanager
def kept() -> Iterator[None]:
    """Remember interrupts that are dropped meanwhile, for ``check``."""
    hook = sys.unraisablehook

    def remember(dropped: UnraisableHookArgs) -> None:
        if dropped.exc_type is KeyboardInterrupt:
            _dropped.set()
        else:
            hook(dropped)

    sys.unraisablehook = remember
    try:
        yield
    finally:
        sys.unraisablehook = hook
        _dropped.clear()


def check() -> None:
    """Raise an interrupt that was dropped. Work that takes long calls this between its steps.

    Raises KeyboardInterrupt.
    """
    if _dropped.is_set():
        _dropped.clear()
        raise KeyboardInterrupt
