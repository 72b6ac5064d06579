"""The storage classes of S3 that Spillway tells apart. Pure."""

from __future__ import annotations

READ_AT_ONCE = ("STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR")
"""Cheaper ones whose objects are read like all others. A policy may move objects to them."""
ARCHIVES = ("GLACIER", "DEEP_ARCHIVE")
"""Those whose objects are given back hours after they were asked for."""
