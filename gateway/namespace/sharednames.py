"""Reports to people which clients share a name, so that the NFS server takes each for the other.

The server finds them (fsal/native/shared.c). The report outlives a restart of it.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from gateway import atomic, clock
from gateway.escapes import text_of
from gateway.settings import Settings

log = logging.getLogger("spillway.clients")

REPORT = "clients.json"
KEPT = 20
"""The names in the report, those that were seen last."""
TOLD_NS = 60 * clock.NS


class SharedNames:
    """Keeps ``run/clients.json``. Parameters: settings."""

    def __init__(self, settings: Settings) -> None:
        self._path = settings.run_dir / REPORT
        self._shared = self._before()
        self._told_ns: dict[str, int] = {}

    def found(self, name: bytes, addresses: str) -> None:
        """Take in that two addresses have a name by turns.

        Parameters: name, which the clients give themselves; addresses, two, with a space between.
        """
        now_ns = clock.now_ns()
        text, both = text_of(name), sorted(addresses.split())
        if now_ns - self._told_ns.get(text, 0) > TOLD_NS:
            log.warning(
                "%s share the name %s, and end each other's lease: give each host its own name",
                " and ".join(both),
                text,
            )
            self._told_ns = {text: now_ns}
        others = [one for one in self._shared if one.get("name") != text]
        entry = {"name": text, "addresses": both, "at_ns": now_ns}
        self._shared = [entry, *others][:KEPT]
        try:
            self._path.parent.mkdir(exist_ok=True)
            report = json.dumps({"shared": self._shared}) + "\n"
            atomic.replace(self._path, report, 0o644, durable=False)
        except OSError as exc:
            log.warning("cannot write %s: %s", self._path, exc)

    def _before(self) -> list[dict[str, Any]]:
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))["shared"]
        except (OSError, ValueError, LookupError, TypeError):
            return []
        return found if isinstance(found, list) else []
