"""Which commands work against a gateway on another machine, and what runs then."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from gateway.cli.look import refuse
from gateway.cli.reach import Reach
from gateway.cli.remote import (
    bucketing,
    checkpointing,
    exporting,
    following,
    looking,
    moving,
    naming,
    ordering,
    promoting,
    recorded,
    retaining,
    tasks,
    tokens,
    trashing,
)
from gateway.cli.remote.client import Api
from gateway.errors import NotPossible, UserError

COMMANDS: Mapping[str, Callable[[argparse.Namespace, Api], int]] = {
    "status": looking.show_status,
    "statistics": looking.show_statistics,
    "clients": looking.show_clients,
    "export": exporting.run,
    "queue": ordering.queue,
    "checkpoints": looking.list_checkpoints,
    "checkpoint": checkpointing.show,
    "delete": checkpointing.delete,
    "policy": retaining.run,
    "trash": trashing.run,
    "undelete": trashing.undelete,
    "release": trashing.release,
    "ls": looking.ls,
    "stat": looking.stat,
    "mkdir": naming.mkdir,
    "chown": naming.chown,
    "chmod": naming.chmod,
    "mv": naming.mv,
    "rm": naming.rm,
    "evict": moving.evict,
    "warm": moving.warm,
    "promote": promoting.promote,
    "promotions": promoting.promotions,
    "demote": promoting.demote,
    "pin": ordering.pin,
    "unpin": ordering.unpin,
    "pins": ordering.list_pins,
    "wait": moving.wait,
    "bucket": bucketing.run,
    "jobs": tasks.run,
    "events": following.follow,
    "history": recorded.show_history,
    "audit": recorded.list_calls,
    "configuration": recorded.show_configuration,
    "token": tokens.run,
}


_OF_NAMES = frozenset({"export", "queue", "policy", "demote", "jobs", "token"})
"""Commands that take a wrong name for wrong usage (exit status 2), as they do on the gateway."""


def run(args: argparse.Namespace, reach: Reach) -> int:
    """Run a command against a gateway. Returns its exit status. Raises UserError."""
    with Api(reach) as api:
        try:
            return COMMANDS[args.command](args, api)
        except NotPossible as exc:
            if args.command in _OF_NAMES:
                raise UserError(str(exc)) from None
            return refuse(exc)
        except KeyError as exc:
            raise api.strange(f"its answer has no {exc}") from None
