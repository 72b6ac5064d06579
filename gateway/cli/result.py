"""Tells what a command found or did: a person in lines, and a script in one JSON document."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

from gateway.serialize import Model, to_json

Found = Model | Mapping[str, Any]

HELP = "what was done, as JSON"


def option(parser: argparse.ArgumentParser) -> None:
    """Declare ``--json`` of a command that changes something."""
    parser.add_argument("--json", action="store_true", help=HELP)


def print_json(found: Found | Sequence[Found]) -> None:
    """Print what was found or done, for a script."""
    print(json.dumps(to_json(found), indent=2))


def show(found: Found, text: str, as_json: bool) -> None:
    """Print what was found or done. Parameters: found, for a script; text, for a person."""
    if as_json:
        print_json(found)
    else:
        print(text)


class Results:
    """Tells what was done with each of several paths or names. A context manager.

    A person is told at once. A script gets a list at the end, also if an error ended the command
    after something was done.
    """

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self._found: list[Found] = []

    def add(self, found: Found, text: str | None = None) -> None:
        """Tell what was done with one. Parameters: text, for a person, or None to say nothing."""
        if self.as_json:
            self._found.append(found)
        elif text is not None:
            print(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.as_json and (self._found or kind is None):
            print_json(self._found)
