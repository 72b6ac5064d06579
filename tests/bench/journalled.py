"""Measures what the journal costs a change of names: the same server with and without a reader.

The reader reads nothing: the cost of following the journal is its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gateway.db import journal
from gateway.db.compiled import Session
from gateway.db.engine import Database
from tests.bench.experiments import Experiment
from tests.bench.names import WORKS, change_names
from tests.bench.rows import Row, Target
from tests.support.nfsserver import Server

CONNECTIONS = 16
COUNT = 8000
UNREAD = "the same without a reader"


def experiment(server: Server) -> Experiment:
    """Creates have the target. Processor times vary less and say where a difference is from."""
    options = ("--dir", "journalled", "--apart", "--connections", CONNECTIONS, "--count", COUNT)
    database = Database(server.settings.database_url)

    def side(is_read: bool, _number: int) -> Sequence[float]:
        with database.reader() as connection, database.transaction(connection):
            session = Session(connection, database.dialect)
            journal.forget_readers(session)
            if is_read:
                journal.Reader("bench").begin(session)
        rates, costs = change_names(server, *options)
        return [*rates, *costs]

    setting = f"{CONNECTIONS} connections x 1, a reader of the journal"
    bounds = (Target(0.97), None, None)
    rows = [
        Row(work, setting, UNREAD, "op/s", bound) for work, bound in zip(WORKS, bounds, strict=True)
    ]
    rows += [Row(f"{work}: server's processor", setting, UNREAD, "µs/op") for work in WORKS]
    return Experiment(tuple(rows), partial(side, True), partial(side, False))
