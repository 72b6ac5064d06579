"""Reads facts about a process from /proc."""

from __future__ import annotations

from functools import cache
from pathlib import Path


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot, or None without such a process.

    Pid and start time together identify a process, because pids are used again (proc(5)).
    """
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return None if state in ("Z", "X") else int(rest[18])


@cache
def here() -> str:
    """Return what names this start of the machine and the PID namespace, in which pid and start
    time identify a process."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
