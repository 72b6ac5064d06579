"""Choice of the gateway that a command is for: this machine's, or another one by its admin API.

No token is ever an argument: every user of a machine can read the arguments of all processes.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from gateway.common.errors import UserError
from gateway.common.network import is_loopback

GATEWAY = "SPILLWAY_GATEWAY"
TOKEN = "SPILLWAY_TOKEN"
TOKEN_FILE = "SPILLWAY_TOKEN_FILE"
CA = "SPILLWAY_CA"
DEFAULT_FILE = "~/.config/spillway/token"
_TOKEN = re.compile(r"[\x21-\x7e]{1,200}")
MAKE = "make one on the gateway: spillway token create --role viewer"


class Reach(NamedTuple):
    """A gateway on another machine."""

    url: str
    """Without a slash at the end."""
    token: str
    ca: Path | None
    """Certificates that are trusted in place of the system's."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a command line that stand before the command."""
    group = parser.add_argument_group("a gateway on another machine")
    group.add_argument(
        "--gateway", metavar="URL", help=f"its admin API, like https://host:8780 ({GATEWAY})"
    )
    group.add_argument(
        "--token-file",
        metavar="FILE",
        help=f"file of mode 0600 with the token; default: {DEFAULT_FILE} ({TOKEN_FILE}, or {TOKEN} "
        "with the token itself)",
    )
    group.add_argument(
        "--ca", metavar="FILE", help=f"certificate to trust, if it is self-made ({CA})"
    )


def gateway_of(args: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the URL of the gateway that a command is for, or None for that of this machine.

    A ``--config`` names a gateway of this machine, whatever the environment says. Raises UserError.
    """
    url: str | None = args.gateway
    if url is not None and args.has_config:
        raise UserError("--gateway and --config exclude each other: one of them names the gateway")
    if url is None and not args.has_config:
        url = environ.get(GATEWAY) or None
    if url is None and (args.token_file or args.ca):
        raise UserError(f"--token-file and --ca are for --gateway URL or {GATEWAY}")
    return url


def reach_of(args: argparse.Namespace, url: str, environ: Mapping[str, str] = os.environ) -> Reach:
    """Return how a gateway is reached. Raises UserError.

    Args:
        url: url of ``gateway_of``.
    """
    ca = args.ca or environ.get(CA) or None
    return Reach(_checked(url), _token(args, environ), None if ca is None else _readable(ca))


def _checked(url: str) -> str:
    parts = urlsplit(url)
    try:
        is_whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole or parts.username or parts.password or parts.query or parts.fragment:
        # The URL is not quoted: it may have a password.
        raise UserError("the gateway's URL must look like https://host:8780")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise UserError(
            f"http://{parts.hostname}: the token would cross the network in the clear: use https"
        )
    return url.rstrip("/")


def _token(args: argparse.Namespace, environ: Mapping[str, str]) -> str:
    """Return the token. An option goes before the environment. Raises UserError."""
    if args.token_file is None and (text := environ.get(TOKEN)):
        return _formed(text, TOKEN)
    named = args.token_file or environ.get(TOKEN_FILE) or None
    path = Path(named or DEFAULT_FILE).expanduser()
    try:
        if path.stat().st_mode & 0o077:
            raise UserError(f"others can read the token in {path}: chmod 600 {path}")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if named is None:
            raise UserError(
                f"there is no token for this gateway: {MAKE}, and put it into {path} (chmod 600) "
                f"or {TOKEN}"
            ) from None
        raise UserError(f"there is no file {path} with a token: {MAKE}") from None
    except OSError as exc:
        raise UserError(
            f"cannot read {path}: {exc.strerror}: check the path and its mode"
        ) from None
    except UnicodeDecodeError:
        text = ""
    return _formed(text, str(path))


def _formed(text: str, source: str) -> str:
    token = text.strip()
    if not _TOKEN.fullmatch(token):
        raise UserError(f"{source} has no token in one line: {MAKE}")
    return token


def _readable(name: str) -> Path:
    path = Path(name).expanduser()
    if not path.is_file():
        raise UserError(
            f"there is no certificate {path}: copy admin.certificate of the gateway to it"
        )
    return path
