"""`spillway checkpoint` and `spillway delete`: one checkpoint, and its way into the trash."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from gateway.checkpoints.shown import MEANING
from gateway.cli import look, result
from gateway.cli.change import each
from gateway.control.gateway import Gateway
from gateway.escapes import display
from gateway.text import shown


def show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a checkpoint")


def show(args: argparse.Namespace, gateway: Gateway) -> int:
    """Show what is known of checkpoints. Returns exit status 1 if a path is none. Raises
    UserError."""
    ways = {"path": _name, "run": _name, "state": _meaning, "grade": _meaning}
    return look.show_found(gateway.checkpoints.one, args, ways)


def _name(text: str) -> Iterator[str]:
    """Yield a path or name as people see it."""
    yield display(text)


def _meaning(word: str | None) -> Iterator[str]:
    """Yield a state or grade, with what it means."""
    yield str(word) if word is None else f"{word}: {MEANING[word]}"


def delete_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--force", action="store_true", help="although it is the newest, or no newer one is durable"
    )
    parser.add_argument("--reason", type=shown, metavar="TEXT", help="why, for other people")
    parser.add_argument("--json", action="store_true", help="only the result, as JSON")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a checkpoint")


def delete(args: argparse.Namespace, gateway: Gateway) -> int:
    """Put checkpoints into the trash. Returns exit status 1 if one stays. Raises UserError."""

    def act(path: str) -> None:
        made = gateway.checkpoints.delete(path, args.reason, insists=args.force)
        back = f"spillway undelete {made.id} takes it back"
        results.add(made, f"{display(made.path)}: in the trash as {made.id}: {back}")

    with result.Results(args.json) as results:
        return each(args.paths, act)
