"""Names a process so that no other can be taken for it, and tells whether it still lives."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from gateway.proc import start_ticks


def owner(pid: int) -> str:
    """Names a process for good: machine since its boot, PID namespace, PID, start."""
    return f"{_here()} {pid} {start_ticks(pid)}"


def pid_of(holder: str) -> str:
    return holder.split()[-2]


def is_dead(holder: str) -> bool:
    """Whether an owner is known to have ended. Of one on another machine nothing is known."""
    here, pid, ticks = holder.rsplit(" ", 2)
    return here == _here() and ticks != str(start_ticks(int(pid)))


@cache
def _here() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
