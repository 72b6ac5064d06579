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
    except OSError as exc:
        raise DataFileError(f"data file {path} cannot be opened: {exc.strerror}") from exc
    found = os.fstat(data.fileno()).st_size
    if found != file.size:
        data.close()
        raise DataFileError(f"data file {path} has {found} bytes, {file.size} expected")
    return data


def read(data: BinaryIO, size: int) -> bytes:
    """Read all bytes. Raises DataFileError."""
    pieces, left = [], size
    try:
        # A read that meets a bad sector answers the bytes before it. The next one tells the error.
        while left and (piece := data.read(left)):
            pieces.append(piece)
            left -= len(piece)
    except OSError as exc:
        raise DataFileError(f"data file cannot be read: {exc.strerror}") from exc
    if left:
        raise DataFileError(f"data file ended {left} bytes early")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
