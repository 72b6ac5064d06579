"""An import of any size takes the memory of a small one, and is seen from its first page on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from gateway.config import loader
from gateway.db.engine import Database
from gateway.db.models import ROOT_INO
from gateway.recovery import import_orders, import_rows
from gateway.recovery.import_orders import ImportPlace, ImportSource
from gateway.recovery.importer import Importer
from tests.support.direct import Direct
from tests.support.gateway import resident_mib
from tests.support.s3server import credentials
from tests.support.t12.listing import PAGE, listing
from tests.support.volumes import make_volume, query, write_settings

OBJECTS = int(os.environ.get("SPILLWAY_IMPORTED_OBJECTS", "3000"))
GROWTH_MAX_MIB = 48.0
"""More than after the first page. A row of each object would take 100 MiB for 100,000."""


def import_all(config: Path) -> None:
    """Import everything in this process. Prints what it took."""
    settings = loader.load(config, {})
    with closing(Database(settings.database_url)) as database:
        control = Direct(settings)
        importer = Importer(settings, database, threading.Event(), lambda: nullcontext(control))
        top = import_orders.begin(
            database, control, ImportSource("data", "set"), ImportPlace(ROOT_INO, b"set", "/set")
        )
        began, first, first_seconds, most = time.monotonic(), 0.0, 0.0, 0.0
        while True:
            importer.step()
            most = max(most, resident_mib(os.getpid()))
            with database.reading() as session:
                row = import_rows.one(session, top)
            assert row is not None
            assert row.error is None, row.error
            if not first and row.files >= PAGE:
                first, first_seconds = most, time.monotonic() - began
            if row.state == "whole":
                break
        seconds = time.monotonic() - began
        control.close()
    print(
        json.dumps(
            {
                "files": row.files,
                "seconds": seconds,
                "first_seconds": first_seconds,
                "first_mib": first,
                "most_mib": most,
            }
        )
    )


def test_memory_does_not_grow_with_an_import(tmp_path: Path) -> None:
    with listing(OBJECTS) as server:
        values = {"bucket": {"name": "own", "prefix": "p", "endpoint_url": server.url}}
        settings = write_settings(tmp_path / "data", values)
        make_volume(settings)
        settings.credentials_file.touch(0o600)
        settings.credentials_file.write_text(credentials())
        call = f"from {__name__} import import_all; import_all(__import__('pathlib').Path"
        done = subprocess.run(
            [sys.executable, "-c", f"{call}({str(settings.source)!r}))"],
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parents[2],
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        assert server.methods == {"GET"}
        assert server.listings <= -(-OBJECTS // PAGE) + 2
    print(f"{found['files'] / found['seconds']:,.0f} files/s", found)
    assert found["files"] == OBJECTS
    assert query(settings, "SELECT count(*) FROM imported_object") == [(OBJECTS,)]
    assert found["most_mib"] - found["first_mib"] < GROWTH_MAX_MIB
    assert found["first_seconds"] == pytest.approx(0.0, abs=60.0)
