"""Services of the package, and how exposed each may be (systemd-analyze security)."""

from __future__ import annotations

from tests.support.checkout import ROOT

UNITS = ROOT / "package/systemd"
SERVICES = sorted(path.name for path in UNITS.glob("spillway-*.service"))
EXPOSURE_MAX = 2.0
