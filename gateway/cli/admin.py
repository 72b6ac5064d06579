"""`spillway admin`: runs the admin API by itself, without `spillway up`."""

from __future__ import annotations

import argparse
import os
import sys
from typing import NoReturn

from gateway import config
from gateway.cli import checks
from gateway.settings import Settings

MODULE = "admin_api"


def arguments(_parser: argparse.ArgumentParser) -> None:
    """Declare nothing: the command has no options of its own."""


def run(args: argparse.Namespace) -> NoReturn:
    """Become the process of the admin API. Raises UserError."""
    settings = config.load(args.config)
    checks.require_data_dir(settings)
    os.environ["PYTHONUNBUFFERED"] = "1"
    os.execv(sys.executable, argv(settings, MODULE))


def argv(settings: Settings, module: str) -> tuple[str, ...]:
    """Return the command line of a process of the gateway."""
    # With -P a directory named gateway in the working directory is not taken for the program.
    return (sys.executable, "-P", "-m", module, "--config", str(settings.source))
