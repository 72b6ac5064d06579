"""The hosts of ``nfs.export`` are those of the configuration as it is when exports change."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from gateway.common.errors import UserError
from gateway.db.engine import Database
from gateway.nfs.export_service import ExportService, WantedExport
from tests.support import nfs4
from tests.support.nfsserver import Server
from tests.support.waiting import until


def test_a_host_that_was_taken_out_stays_out(tmp_path: Path) -> None:
    """The process that changes an export started before, as the admin API does."""
    data = WantedExport("/data", b"", ["127.0.0.0/8 rw"], "none")
    with (
        Server("spillway", tmp_path, tmp_path / "log") as server,
        closing(Database(server.settings.database_url)) as database,
        nfs4.Client(server.port) as client,
    ):
        until((server.settings.run_dir / "nfs.sock").exists, "the control socket")
        exports = ExportService(server.settings, database)
        source = server.settings.source
        text = source.read_text()
        source.write_text(text.replace("[nfs]\n", '[nfs]\nclients = ["10.0.0.0/8 rw"]\n'))
        exports.put(data, "the test")
        assert client.names(client.handle()) == ["data"]
        source.write_text("[nfs")
        with pytest.raises(UserError, match="is not valid TOML"):
            exports.put(data._replace(name="/more"), "the test")
        assert client.names(client.handle()) == ["data"]
        assert [export.export.name for export in exports.listed()] == ["/data"]
        source.write_text(text)
        exports.reload()
        assert client.names(client.handle()) == ["export", "data"]
