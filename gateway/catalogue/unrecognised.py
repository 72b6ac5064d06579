"""Search for directories that look like checkpoints, and that no rule knows.

No policy keeps or deletes them, no receipt tells of them, and nothing says when the bucket has them
as a whole.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable
from typing import NamedTuple

from gateway.catalogue.content import TENSORS
from gateway.catalogue.store import Catalogue, catalogue_of
from gateway.catalogue.tracker import made_with
from gateway.common import clock
from gateway.common import files as atomic
from gateway.common.text import printable
from gateway.common.types import InodeKind
from gateway.config import datadir
from gateway.config.settings import Settings
from gateway.db.engine import Database

log = logging.getLogger("checkpoints")

ENDS = (*TENSORS, *b".distcp .npz .h5 .keras .msgpack .gguf .onnx .tensors".split())
_TENSORFLOW = re.compile(rb"\.data-\d{5}-of-\d{5}$")
LOOK_SECONDS = 3600.0
LOOK_SHARE = 0.01
"""All names are read after so many seconds, and for no more than this share of the time."""


class Unrecognised(NamedTuple):
    """A directory with files of tensors that belong to no checkpoint."""

    path: bytes
    """Path below the export's root."""
    files: int
    """The number of such files directly in it."""
    size: int
    """Bytes of them."""
    first: bytes
    """The first name."""


def unrecognised(
    catalogue: Catalogue, is_over: Callable[[], bool] = lambda: False
) -> list[Unrecognised]:
    """Return the directories by their paths. All names that are in no checkpoint are read, a page
    in each transaction. Raises TryAgain.

    Args:
        is_over: whether to end early, with what was found until then.
    """
    directories: dict[bytes, Unrecognised] = {}
    for page in catalogue.outside():
        for outside_name in page:
            name = outside_name.parts[-1]
            is_known = outside_name.is_member or outside_name.found is not None
            if (
                is_known
                or outside_name.entry.kind == InodeKind.DIRECTORY
                or not _is_of_tensors(name)
            ):
                continue
            path = b"/".join(outside_name.parts[:-1])
            before = directories.get(path) or Unrecognised(path, 0, 0, name)
            files, size = before.files + 1, before.size + outside_name.entry.size
            directories[path] = before._replace(files=files, size=size)
        if is_over():
            break
    return sorted(directories.values())


def _is_of_tensors(name: bytes) -> bool:
    return name.endswith(ENDS) or _TENSORFLOW.search(name) is not None


class UnrecognisedSurvey:
    """A background task (gateway.catalogue.background): it counts such directories, for ``spillway
    status``.

    After a restart the last report counts until it is LOOK_SECONDS old, if it was made by the same
    rules.

    Args:
        stop: after which it ends between two transactions.
    """

    name = "unrecognised"

    def __init__(self, settings: Settings, database: Database, stop: threading.Event) -> None:
        self._path = settings.run_dir / datadir.UNRECOGNISED
        self._catalogue = catalogue_of(settings, database)
        self._stop = stop
        self._rules = made_with(settings)
        self._due_at = clock.monotonic_seconds() + self._left_seconds(settings)

    def run_once(self) -> float:
        began = clock.monotonic_seconds()
        if began >= self._due_at:
            directories = unrecognised(self._catalogue, self._stop.is_set)
            if self._stop.is_set():
                return 0.0
            ended = clock.monotonic_seconds()
            self._due_at = ended + max(LOOK_SECONDS, (ended - began) / LOOK_SHARE)
            first = printable(directories[0].path) if directories else None
            facts = {
                "time_ns": clock.now_ns(),
                "rules": self._rules,
                "directories": len(directories),
                "first": first,
            }
            try:
                atomic.replace(self._path, json.dumps(facts) + "\n", 0o644, durable=False)
            except OSError as exc:
                log.warning("cannot write %s: %s", self._path, exc.strerror)
        return self._due_at - clock.monotonic_seconds()

    def _left_seconds(self, settings: Settings) -> float:
        """Return for how long the last report counts. One of the future does not count: the clock
        went back, and its age is not known."""
        try:
            report = datadir.read(settings, datadir.UNRECOGNISED) or {}
        except OSError:
            return 0.0
        time_ns = report.get("time_ns")
        if report.get("rules") != self._rules or not isinstance(time_ns, int):
            return 0.0
        age_seconds = (clock.now_ns() - time_ns) / clock.NS
        return max(0.0, LOOK_SECONDS - age_seconds) if age_seconds >= 0 else 0.0
