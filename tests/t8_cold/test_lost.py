"""Local bytes that the disk does not give back are fetched, and nothing is judged by the rest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from awscrt.checksums import crc64nvme

from gateway.cache.hydration import DataFile
from gateway.cache.rows import AbsentSource
from gateway.catalogue import statements as own
from gateway.catalogue.facts import Unread
from gateway.catalogue.tree import FileReader, entry_of
from gateway.common.types import ROOT_CRED, Sealed, SetAttr
from gateway.config.settings import Settings
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.namespace.data_files import DataFiles
from gateway.objectstore.checksums import CRC_BYTES
from gateway.objectstore.ranges import ObjectLocation
from tests.support.namespace import Namespace

ROOT = 2
DATA = b"global_step12"
BLOCK_BYTES = 4 << 20


def test_a_block_that_cannot_be_read_is_one_that_is_not_here(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(DATA)
    crc = crc64nvme(DATA).to_bytes(CRC_BYTES, "big")
    source = AbsentSource(16, 1, 1, len(DATA), ObjectLocation("k", "e"), BLOCK_BYTES, crc)
    buffer = bytearray(BLOCK_BYTES)
    for flags, is_here in ((os.O_RDWR, True), (os.O_WRONLY, False)):  # the second cannot be read
        data = DataFile(os.open(path, flags), source, was_there=True, was_long=True)
        assert data.has(0, buffer) == is_here
        data.close()


@pytest.mark.parametrize("left", [None, 0, 5])
def test_no_checkpoint_is_judged_by_what_is_left_of_a_file(
    namespace: Namespace, settings: Settings, left: int | None
) -> None:
    attr = namespace.create(ROOT_CRED, ROOT, b"latest", SetAttr(mode=0o644))
    path = namespace.files.path(attr.ino, attr.epoch)
    path.write_bytes(DATA)
    namespace.seal(attr.ino, Sealed(len(DATA), 4096, 77, 1))
    database, files = Database(settings.database_url), DataFiles(settings.files_dir)
    with database.reader() as connection:
        entry = entry_of(Session(connection, database.dialect).one(own.INODE, ino=attr.ino))
    assert FileReader(database, files).read(b"latest", entry, 0, 4096) == DATA
    if left is None:
        path.unlink()
    else:
        os.truncate(path, left)
    for length in (len(DATA), 4096):
        with pytest.raises(Unread):
            FileReader(database, files).read(b"latest", entry, 0, length)
