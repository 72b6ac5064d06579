"""Formats sizes and times for people."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


def size(size_bytes: float) -> str:
    """Format a number of bytes."""
    for unit in _UNITS:
        if size_bytes < 1024 or unit == _UNITS[-1]:
            break
        size_bytes /= 1024
    return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"


def decimal_size(size_bytes: float) -> str:
    """Format a number of bytes with units of 1,000, as networks and prices use them."""
    for unit in _DECIMAL_UNITS:
        # 999.5 would be shown as 1e+03.
        if size_bytes < 999.5 or unit == _DECIMAL_UNITS[-1]:
            break
        size_bytes /= 1000
    return f"{size_bytes:.3g} {unit}" if size_bytes < 999.5 else f"{size_bytes:,.0f} {unit}"


def duration(seconds: float) -> str:
    """Format a number of seconds."""
    for unit_seconds, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit_seconds:
            return f"{seconds / unit_seconds:.1f} {unit}"
    return f"{seconds:.0f} s"
