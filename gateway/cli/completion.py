"""`spillway completion`: prints the script by which a shell completes commands and options."""

from __future__ import annotations

import argparse

import shtab


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=shtab.SUPPORTED_SHELLS, help="the shell")


def run(args: argparse.Namespace) -> int:
    """Print the script for a shell."""
    print(shtab.complete(args.program, args.shell))
    return 0
