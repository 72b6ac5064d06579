"""Sites with sealed files, and a disk that changes a bit, for tests of checksums."""

from __future__ import annotations

from tests.support.drainsite import Site


def flip(site: Site, path: str, at: int) -> None:
    """Change one bit of a data file, as a bad disk does."""
    attr = site.attr(path)
    with site.namespace.files.path(attr.ino, attr.epoch).open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def settle(site: Site) -> None:
    """Let the time after the last close be over for all files."""
    site.rows("UPDATE inode SET drain_after_ns = 1 RETURNING 1")


def unsettle(site: Site) -> None:
    site.rows("UPDATE inode SET drain_after_ns = drain_after_ns + 60000000000 RETURNING 1")


def sealed_site(site: Site) -> Site:
    site.configure(checksum_at_seal=True, settle_seconds=120.0)
    return site
