"""Looks into zip archives, which ``torch.save`` writes, without reading what is in them. Pure."""

from __future__ import annotations

import io
import zipfile

from gateway.checkpoints.facts import READ_MAX_BYTES, Entry, Place

UNREADABLE = (zipfile.BadZipFile, OSError, ValueError, NotImplementedError)
"""What ``zipfile`` raises for a file that is not an archive, or is a damaged one."""


def archive_is_whole(place: Place, name: bytes, entry: Entry) -> bool:
    """Return whether a zip archive has its directory at its end. Raises Unread."""
    try:
        with zipfile.ZipFile(Reading(place, name, entry)) as archive:
            infos = archive.infolist()
    except UNREADABLE:
        return False
    return all(one.header_offset + one.compress_size <= entry.size for one in infos)


class Reading(io.RawIOBase):
    """A file in a place, for ``zipfile``."""

    def __init__(self, place: Place, name: bytes, entry: Entry) -> None:
        self._place, self._name, self._entry = place, name, entry
        self._at = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = (0, self._at, self._entry.size)[whence]
        if start + offset < 0:
            raise OSError("a position before the file")
        self._at = start + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        rest = max(0, self._entry.size - self._at)
        length = rest if size is None or size < 0 else min(size, rest)
        if length > READ_MAX_BYTES:
            raise OSError("more than is read of a file at once")
        found = self._place.read(self._name, self._entry, self._at, length) if length else b""
        self._at += len(found)
        return found
