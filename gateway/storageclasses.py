"""The storage classes of S3 that Spillway tells apart. Pure."""

from __future__ import annotations

TIERED = "INTELLIGENT_TIERING"
"""It has archives of its own, into which a bucket can be told to move what is not read. What is
given back from them stays readable."""
READ_AT_ONCE = ("STANDARD_IA", "ONEZONE_IA", TIERED, "GLACIER_IR")
"""Cheaper ones whose objects are read like all others. A policy may move objects to them."""
ARCHIVES = ("GLACIER", "DEEP_ARCHIVE")
"""Those whose objects are given back hours after they were asked for."""

EXPEDITED, STANDARD, BULK = "Expedited", "Standard", "Bulk"
"""How fast an object is given back."""
THAW_HOURS = {EXPEDITED: 5 / 60, STANDARD: 5.0, BULK: 12.0}
"""The longest that this usually takes."""
DEEP_THAW_HOURS = {STANDARD: 12.0, BULK: 48.0}
"""The same for deep archives, which give back nothing at once."""
