"""Units of sizes, times and rates, and their forms for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

Units = Mapping[str, Decimal | int]
"""The value of each unit, by the name that people write."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
BYTES: Mapping[str, int] = {
    **{unit: 1000**power for power, unit in enumerate(_DECIMAL_UNITS[:-1])},
    **{unit: 1024**power for power, unit in enumerate(_UNITS)},
}
SECONDS: Units = {"ms": Decimal("0.001"), "s": 1, "m": 60, "h": 3600, "d": 86_400}
BYTES_PER_SECOND: Units = {
    **{f"{prefix}bit/s": Decimal(1000**power) / 8 for power, prefix in enumerate("MGT", 2)},
    **{f"{unit}/s": size_bytes for unit, size_bytes in BYTES.items()},
}


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


def days(number: float) -> str:
    """Format a number of days that a person chose."""
    return "1 day" if number == 1 else f"{number:g} days"
