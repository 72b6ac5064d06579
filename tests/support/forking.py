"""Context of processes that a test may kill: each is forked from a server that has the imports."""

from __future__ import annotations

import multiprocessing

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["tests.support.namespace", "psycopg", "tests.support.volumes"])
