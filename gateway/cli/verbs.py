"""Declares the verbs of a subcommand, like ``list`` and ``set`` of ``spillway export``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any


def adder(
    parser: argparse.ArgumentParser,
) -> Callable[[str, str, Callable[..., Any]], argparse.ArgumentParser]:
    """Return a function that adds a verb and returns its parser.

    Its parameters: name of the verb, which ``args.verb`` is then; text, its help; act, which
    ``args.act`` is then.
    """
    verbs = parser.add_subparsers(metavar="VERB", required=True)

    def verb(name: str, text: str, act: Callable[..., Any]) -> argparse.ArgumentParser:
        sub = verbs.add_parser(name, help=text, description=text, allow_abbrev=False)
        # Without SUPPRESS its default would replace a --config before the verb.
        sub.add_argument("--config", metavar="PATH", default=argparse.SUPPRESS, help="the file")
        sub.set_defaults(act=act, verb=name)
        return sub

    return verb
