"""Renderer of exports in Ganesha's syntax, and parser of what it rendered.

The blocks are the end of ganesha.conf, which the server can read again. Option names and ranges are
those of Ganesha 4.3 (support/exports.c). What it reads again must be right: it drops an export
whose block it refuses, drops all exports when it cannot parse the text (nfs_init.c, reread_config),
and loops without end after the Pseudo of an Export_Id was changed (exports.c, export_commit_common:
the export is mounted twice). So nothing is rendered that was not checked, and a number belongs to
one name and one directory.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gateway.common.errors import ConfigError
from gateway.common.network import ClientRule, Squash, parse
from gateway.config.settings import Settings
from gateway.nfs.export import ExportedDirectory

MAIN_NUMBER = 1
"""Export_Id of ``nfs.export``. Another number would make all handles of clients stale."""

ANONYMOUS = 65534
"""Debian's user nobody and group nogroup, which squashed users become."""

MARK = "# What follows is read again when exports are changed: spillway export.\n"

_FILE_SYSTEM = 0x5350
"""The first half of the fsid of an export beside ``nfs.export``; its number is the second half.

Two exports are two file systems to a client, because the same file has other handles in each: with
one fsid, Linux would keep it in two caches as one file."""
_SQUASH = {Squash.NONE: "None", Squash.ROOT: "Root", Squash.ALL: "All"}
_NO_REVISION = "0"
_HEAD = re.compile(r"\w+ \{")
_OPTION = re.compile(r'\w+ = ("[^"]*"|[^";{}#]+);')
_TOLD = re.compile(
    r'Export_Id = (\d+);.*?Pseudo = "([^"]*)";.*?SecType = ([^;]*);.*?MaxRead = (\d+);'
    r".*?Directory = (\d+);\s*Revision = (\d+);",
    re.DOTALL,
)

_EXPORT = """
EXPORT {{
    Export_Id = {number};
    Path = {path};
    Pseudo = {pseudo};
    # Of hosts that no CLIENT below fits.
    Access_Type = None;
    Squash = {squash};
{file_system}    Anonymous_Uid = {anonymous};
    Anonymous_Gid = {anonymous};
    SecType = {security};
    Protocols = 4;
    Transports = TCP;
{groups}    Attr_Expiration_Time = 60;
    MaxRead = {max_io_bytes};
    MaxWrite = {max_io_bytes};
    PrefRead = {max_io_bytes};
    PrefWrite = {max_io_bytes};
    FSAL {{
        Name = PYTHON;
        Directory = {directory};
        Revision = {revision};
    }}
{clients}}}
"""

_CLIENT = """\
    CLIENT {{
        Clients = {networks};
        Access_Type = {access};
        Squash = {squash};
        Protocols = 4;
    }}
"""


class Fixed(NamedTuple):
    """What of an export a running server cannot change."""

    name: str
    directory: int
    """The inode of the root; 0: the namespace's root."""
    io_bytes: int
    """The largest READ. The server's buffers are made for it."""
    security: str
    """The server reads at its start whether there is Kerberos."""


class Written(NamedTuple):
    """What a text says that a server should tell after reading it."""

    revision: int
    fixed: dict[int, Fixed]
    """The fixed facts, by the numbers of the exports."""

    @property
    def directories(self) -> dict[int, int]:
        return {number: fixed.directory for number, fixed in self.fixed.items()}


def render(settings: Settings, exports: Sequence[ExportedDirectory]) -> str:
    """Return the blocks of all exports, ``nfs.export`` first. Each has the revision of the text.

    Raises ConfigError when ``nfs.export`` cannot be written in Ganesha's syntax.
    """
    whole = _Block(
        MAIN_NUMBER, settings.nfs.export, settings.nfs.export, 0, settings.nfs.clients,
        settings.nfs.squash,
    )  # fmt: skip
    # Ganesha changes no path of an export that it has: it must not depend on the directory's name.
    others = [_block_of(export) for export in sorted(exports, key=lambda export: export.number)]
    text = "".join(_render(settings, block, _NO_REVISION) for block in (whole, *others))
    revision = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
    return text.replace(f"Revision = {_NO_REVISION};", f"Revision = {revision};")


def render_one(settings: Settings, export: ExportedDirectory) -> str:
    """Return the block of an export for a person: without the revision, which belongs to a whole
    text."""
    text = _render(settings, _block_of(export), _NO_REVISION)
    return text.replace(f"        Revision = {_NO_REVISION};\n", "").strip()


def read(text: str) -> Written:
    """Return what rendered blocks say. Raises ValueError if they were not rendered here."""
    blocks = _TOLD.findall(text)
    revisions = {int(revision) for *_fixed, revision in blocks}
    if len(revisions) != 1 or len({number for number, *_fixed in blocks}) != len(blocks):
        raise ValueError("no exports, or of several revisions, or two of a number")
    fixed = {
        int(number): Fixed(name, int(directory), int(io_bytes), security)
        for number, name, security, io_bytes, directory, _revision in blocks
    }
    return Written(revisions.pop(), fixed)


def unsound(text: str) -> str | None:
    """Return a line that Ganesha may not be able to parse, or None.

    It knows only the forms that are rendered: a comment, the head of a block, an option, an end.
    """
    depth = 0
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.endswith("{") and _HEAD.fullmatch(stripped):
            depth += 1
        elif stripped == "}" and depth > 0:
            depth -= 1
        elif stripped and not stripped.startswith("#") and not _OPTION.fullmatch(stripped):
            return line
    return None if depth == 0 else "(the end, inside a block)"


def quoted(key: str, value: str | Path) -> str:
    """Return a string in Ganesha's double quotes.

    Raises ConfigError if the string needs an escape.

    Args:
        key: its name for people.
    """
    text = str(value)
    if not text.isprintable() or set(text) & set('"\\'):
        raise ConfigError(
            key,
            text,
            "quotes, backslashes and control characters cannot be written in ganesha.conf; "
            "use another path",
        )
    return f'"{text}"'


class _Block(NamedTuple):
    number: int
    path: str
    name: str
    directory: int
    clients: Sequence[str]
    squash: str


def _block_of(directory: ExportedDirectory) -> _Block:
    path = f"/inode/{directory.directory}"
    return _Block(
        directory.number,
        path,
        directory.name,
        directory.directory,
        directory.clients,
        directory.squash,
    )


def _render(settings: Settings, block: _Block, revision: str) -> str:
    squash = Squash(block.squash)
    return _EXPORT.format(
        number=block.number,
        path=quoted("nfs.export", block.path),
        pseudo=quoted("nfs.export", block.name),
        squash=_SQUASH[squash],
        file_system=(
            f"    Filesystem_Id = {_FILE_SYSTEM}.{block.number};\n" if block.directory else ""
        ),
        anonymous=ANONYMOUS,
        groups="    Manage_Gids = true;\n" if settings.nfs.manage_gids else "",
        security=", ".join(settings.nfs.security),
        max_io_bytes=settings.nfs.max_io_bytes,
        directory=block.directory,
        revision=revision,
        clients="".join(_client(parse(entry), squash) for entry in block.clients),
    )


def _client(client: ClientRule, squash: Squash) -> str:
    """Return one block of an export's access control list, which Ganesha reads in order."""
    return _CLIENT.format(
        networks=_networks(client),
        access="RW" if client.writes else "RO",
        squash=_SQUASH[client.squash or squash],
    )


def _networks(client: ClientRule) -> str:
    """Return a client's hosts in Ganesha's syntax, which has no prefix of length 0."""
    if client.network.prefixlen == 0:
        return ", ".join(map(str, client.network.subnets()))
    return client.hosts
