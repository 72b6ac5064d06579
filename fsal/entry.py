"""Entry of the Python side: native/python.c calls ``start`` once, which fills the table."""

from __future__ import annotations

import gc
import logging
import resource
import sys
from functools import partial
from pathlib import Path

from fsal import bridge
from fsal.verbs import Verbs
from gateway.common import process
from gateway.common.errors import TryAgain, UserError
from gateway.common.types import Attr
from gateway.config import loader
from gateway.config.settings import Settings
from gateway.db.models import ROOT_INO
from gateway.namespace.facade import Namespace
from gateway.namespace.names_log import NamesLog
from gateway.namespace.server_reports import DiskTrouble, SharedNames, Space, UsageReport
from gateway.nfs import server
from gateway.processes import daemon

NO_LIMIT = 2**64 - 1
PARK_SECONDS = 5.0
"""The time that a READ waits for bytes of the bucket. A client whose READs all wait renews its
lease only after it."""

_alive: list[object] = []
"""Objects that C points to. C would call a callback also after Python freed it."""


def stop() -> None:
    """Close the namespace. Nothing is committed after it. C calls this as the last of all calls."""
    for referent in _alive:
        if isinstance(referent, Namespace):
            referent.close()


def _raise_limit() -> None:
    """Raise the soft limit of descriptors to the hard one.

    Each open file of a client has a descriptor, and the usual soft limit is 1,024.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _fill(table: bridge.TableStruct, settings: Settings, namespace: Namespace, root: Attr) -> None:
    """Fill the values of the table that do not change while the server runs."""
    table.root_ino = root.ino
    table.root_generation = root.generation
    table.volume_id = int.from_bytes(namespace.boot.fs_id[:8], "little")
    table.boot = namespace.boot.boot
    table.files_dir = str(namespace.files.root).encode()
    table.run_dir = str(settings.run_dir).encode()
    limits = settings.space
    table.reserve_bytes = limits.reserve_bytes
    table.dirty_limit_bytes = limits.dirty_limit_bytes or NO_LIMIT
    table.slow_per_mille = int(limits.slow_from * 1000)
    table.full_wait_ms = int(limits.full_wait_seconds * 1000)
    table.park_ms = int(min(PARK_SECONDS, settings.nfs.lease_seconds / 4) * 1000)
    table.acknowledges = int(bool(namespace.acknowledge))
    table.acknowledge_ms = int(settings.acknowledge.wait_seconds * 1000)


def start(config_path: str, table_address: int) -> bool:
    """Open the namespace and hand its operations to C.

    Returns False, after a line on stderr, when a person must act or the database does not answer.
    The caller prints other exceptions.

    Args:
        config_path: the TOML file.
        table_address: the address of a ``struct spw_table``.
    """
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("spillway").setLevel(logging.INFO)
    _raise_limit()
    table = bridge.TableStruct.from_address(table_address)
    bridge.check_sizes(table)
    try:
        settings = loader.load(Path(config_path))
        namespace = Namespace(settings)
        root = namespace.getattr(ROOT_INO)
    except (UserError, TryAgain) as exc:
        print(f"spillway: {exc}", file=sys.stderr)
        return False
    _fill(table, settings, namespace, root)
    verbs = Verbs(
        namespace,
        Space(settings, namespace),
        DiskTrouble(settings),
        SharedNames(settings),
        NamesLog(settings),
        UsageReport(settings),
    )
    table.notes_opens = int(verbs.notes_opens)
    table.commits = namespace.commits.address
    table.batch = bridge.guard(verbs.batch)
    _alive.append(table.batch)
    _alive.append(namespace)
    # What the start made stays. Every full collection would look at all of it, while calls wait.
    gc.freeze()
    # The server listens only after this function has returned.
    process.keep_telling(
        partial(server.answers, settings), partial(daemon.ready, settings, "ganesha")
    )
    logging.getLogger("spillway.fsal").info(
        "namespace open: start %d; after the last stop %d files were sealed, %d orphans reclaimed",
        namespace.boot.boot,
        *namespace.recovered,
    )
    return True
