"""Names a process so that no other can be taken for it, and tells whether it still runs."""

from __future__ import annotations

from gateway.proc import here, start_ticks


def owner(pid: int) -> str:
    """Return the name of a process for all time: machine since its boot, PID namespace, PID,
    start."""
    return f"{here()} {pid} {start_ticks(pid)}"


def pid_of(holder: str) -> str:
    return holder.split()[-2]


def is_dead(holder: str) -> bool:
    """Return whether an owner is known to have ended. Nothing is known of one on another
    machine."""
    place, pid, ticks = holder.rsplit(" ", 2)
    return place == here() and ticks != str(start_ticks(int(pid)))
