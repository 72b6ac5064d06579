"""Reads the local bytes of a closed file: as many as its inode says, or it raises an error."""

from __future__ import annotations

import io
import os
from typing import BinaryIO

from gateway.data.layout import DataFiles
from gateway.drain.rows import File
from gateway.errors import DataFileError


def open_data(files: DataFiles, file: File) -> BinaryIO:
    """Open a data file. A file that was never written is empty. Raises DataFileError."""
    path = files.path(file.ino, file.epoch)
    try:
        data = path.open("rb", buffering=0)
    except FileNotFoundError:
        if file.size == 0:
            return io.BytesIO()
        raise DataFileError(f"data file {path} is missing, {file.size} bytes expected") from None
    found = os.fstat(data.fileno()).st_size
    if found != file.size:
        data.close()
        raise DataFileError(f"data file {path} has {found} bytes, {file.size} expected")
    return data


def read(data: BinaryIO, size: int) -> bytes:
    """Read all bytes. Raises DataFileError."""
    body = data.read(size)
    if len(body) != size:
        raise DataFileError(f"data file ended {size - len(body)} bytes early")
    return body
