"""Replaces a small file as a whole: a reader sees the old text or the new one, never a part."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path


def replace(path: Path, text: str, mode: int, *, durable: bool = True) -> bool:
    """Give a file this text and mode. The file never exists with a wider mode than asked.

    Parameters: mode, permission bits, independent of the umask; durable, whether to fsync (a status
    file that is written again at every start needs no fsync). Returns False when the file had the
    text already; its mode is then set if it differs. Raises OSError.
    """
    data = text.encode()
    if _read(path) == data:
        if path.stat().st_mode & 0o777 != mode:
            path.chmod(mode)
        return False
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            os.fchmod(fd, mode)
            file.flush()
            if durable:
                os.fsync(fd)
        fresh.replace(path)
    except BaseException:
        with suppress(OSError):
            fresh.unlink()
        raise
    if durable:
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    return True


def _read(path: Path) -> bytes | None:
    with suppress(FileNotFoundError):
        return path.read_bytes()
    return None
