"""Parsers of options: subcommands like ``list`` of ``spillway export``, quantities, and times.

Quantities and times are read as people write them: 350GB, 15m, 100Gbit/s, 10%.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from gateway.common.errors import UserError
from gateway.common.units import BYTES, BYTES_PER_SECOND, SECONDS, Units


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


_FORM = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?([^0-9\s.]\S*)?")
"""With more digits a product of quantities could be too large for a float."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


class QuantityKind(NamedTuple):
    """What a quantity measures."""

    units: Units
    """The value of each unit. The unit "" stands for a number alone."""
    metavar: str
    """Its name in a help text."""
    example: str
    is_whole: bool = False
    is_share: bool = False
    may_be_zero: bool = False

    def read(self, name: str, text: str) -> float:
        """Return the value of a text, an int if it is whole by its kind.

        Args:
            name: which errors name.

        Raises:
            UserError: the text is not of this kind.
        """
        match = _FORM.fullmatch(text)
        if match is None:
            raise UserError(f"{name} {text!r}: must look like {self.example}")
        number, unit = match[1], match[2] or ""
        if unit not in self.units:
            units = ", ".join(unit for unit in self.units if unit) or "none"
            raise UserError(f"{name} {text!r}: must look like {self.example}; units: {units}")
        value = Decimal(number) * self.units[unit]
        if value == 0 and not self.may_be_zero:
            raise UserError(f"{name} {text!r}: must be more than 0")
        if self.is_share and value > 1:
            raise UserError(f"{name} {text!r}: must be at most 100%")
        if self.is_whole and value % 1:
            raise UserError(f"{name} {text!r}: must be a whole number")
        return int(value) if self.is_whole else float(value)


_ONE: Units = {"": 1}

COUNT = QuantityKind(_ONE, "N", "3", is_whole=True)
NUMBER = QuantityKind(_ONE, "NUMBER", "14")
AMOUNT = NUMBER._replace(may_be_zero=True)
PRICE = QuantityKind(_ONE, "PRICE", "23", may_be_zero=True)
SHARE = QuantityKind({"%": Decimal("0.01"), "": 1}, "SHARE", "10%", is_share=True)
PARAMETERS = QuantityKind({"": 1, "M": 10**6, "B": 10**9, "T": 10**12}, "NUMBER", "405B")
SIZE = QuantityKind(BYTES, "SIZE", "350GB", is_whole=True)
RATE = QuantityKind(BYTES_PER_SECOND, "RATE", "100Gbit/s")
DURATION = QuantityKind(SECONDS, "TIME", "15m")
WAIT = DURATION._replace(may_be_zero=True)
EVENTS = COUNT._replace(may_be_zero=True)


def moment(name: str, text: str) -> datetime:
    """Return the moment of a text in UTC: ISO 8601, of this machine's time zone if it names none,
    or how long ago it is, like ``90m``.

    Args:
        name: which errors name.

    Raises:
        UserError: the text is no moment.
    """
    try:
        if _DATE.match(text):
            return datetime.fromisoformat(text).astimezone(UTC)
        return datetime.now(UTC) - timedelta(seconds=DURATION.read(name, text))
    except (ValueError, OverflowError, UserError):
        raise UserError(
            f"{name} {text!r}: must look like 2026-11-23T09:30, or like 90m for so long ago"
        ) from None
