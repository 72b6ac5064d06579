"""Which commands work against a gateway on another machine, and what runs then."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from gateway.cli.look import refuse
from gateway.cli.reach import Reach
from gateway.cli.remote import looking, moving, naming, ordering, retaining, tasks, tokens
from gateway.cli.remote.client import Api
from gateway.errors import NotPossible

COMMANDS: Mapping[str, Callable[[argparse.Namespace, Api], int]] = {
    "status": looking.show_status,
    "statistics": looking.show_statistics,
    "queue": ordering.queue,
    "checkpoints": looking.list_checkpoints,
    "policy": retaining.run,
    "ls": looking.ls,
    "stat": looking.stat,
    "mkdir": naming.mkdir,
    "mv": naming.mv,
    "rm": naming.rm,
    "evict": moving.evict,
    "warm": moving.warm,
    "pin": ordering.pin,
    "unpin": ordering.unpin,
    "pins": ordering.list_pins,
    "wait": moving.wait,
    "jobs": tasks.run,
    "token": tokens.run,
}


def run(args: argparse.Namespace, reach: Reach) -> int:
    """Run a command against a gateway. Returns its exit status. Raises UserError."""
    with Api(reach) as api:
        try:
            return COMMANDS[args.command](args, api)
        except NotPossible as exc:
            return refuse(exc)
        except KeyError as exc:
            raise api.strange(f"its answer has no {exc}") from None
