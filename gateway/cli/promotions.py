"""Commands `spillway checkpoint promote` and `spillway promotion list` and `remove`.

A promotion is a copy of a checkpoint that only a person removes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from gateway.cli import output
from gateway.cli.files import DONE, NOT_POSSIBLE, refuse
from gateway.cli.output import showing
from gateway.cli.policies import moment
from gateway.common.errors import NotPossible
from gateway.common.models import to_json
from gateway.common.text import display, shown
from gateway.common.units import size
from gateway.lifecycle.promotion.store import PromotionState
from gateway.service.gateway import Gateway
from gateway.service.promotions import Promotion, PromotionRequest

COLUMNS = ("name", "state", ">files", ">size", "source", "by", "asked", "why")


def promote_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--as", dest="name", required=True, metavar="NAME", help="its new name")
    parser.add_argument("--note", default="", metavar="TEXT", help="why, for other people")
    tag = "of its objects, beside spillway=promoted; may be repeated"
    parser.add_argument("--tag", dest="tags", action="append", default=[], metavar="K=V", help=tag)
    parser.add_argument("--to", metavar="PREFIX", help="its keys begin so, outside of our prefix")
    parser.add_argument(
        "--legal-hold", action="store_true", help="no program deletes its objects (Object Lock)"
    )
    parser.add_argument(
        "--wait",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="until it is durable, and then until it is promoted (default)",
    )
    parser.add_argument("--json", action="store_true", help="only the result, as JSON")
    parser.add_argument("path", metavar="PATH", help="a checkpoint, or any directory or file")


def promote(args: argparse.Namespace, gateway: Gateway) -> int:
    """Promote a checkpoint. Returns exit status 1 if it cannot be promoted. Raises UserError."""
    request = PromotionRequest(
        args.path, args.name, args.note, args.tags, args.to, legal_hold=args.legal_hold
    )
    with showing(args.json) as tell:
        made = gateway.promotions.promote(request, tell if args.wait else None)
    output.show(made, _line(made), args.json)
    return NOT_POSSIBLE if made.state == PromotionState.FAILED else DONE


def promotions_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")


def promotions(args: argparse.Namespace, gateway: Gateway) -> int:
    """List the promotions. Raises UserError."""
    listed = list(gateway.promotions.every())
    return output.show_facts(listed, args.json, COLUMNS, _cells, "nothing is promoted")


def _cells(promotion: Promotion) -> tuple[str, ...]:
    files, length = f"{promotion.files:,}", size(promotion.size_bytes)
    why = "; ".join(filter(None, (shown(promotion.reason or promotion.note), *_remarks(promotion))))
    source = display(promotion.source)
    return (
        promotion.name,
        promotion.state,
        files,
        length,
        source,
        promotion.by,
        moment(promotion.asked_ns)[:10],
        why,
    )


def demote_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do it: it cannot be undone")
    parser.add_argument("--release-hold", action="store_true", help="end its legal hold first")
    parser.add_argument(
        "--wait",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="until it is removed (default)",
    )
    output.option(parser)
    parser.add_argument("name", metavar="NAME", help="as spillway promotion list shows it")


def demote(args: argparse.Namespace, gateway: Gateway) -> int:
    """Remove a promotion. Returns exit status 1 if it is not confirmed. Raises UserError."""
    promotion = gateway.promotions.named(args.name)
    if not args.yes:
        contents = f"{promotion.files:,} files, {size(promotion.size_bytes)}"
        text = (
            f"{promotion.name}: {contents} would be removed for good, also from the bucket: add "
            "--yes"
        )
        output.show({**to_json(promotion), "removed": False}, text, args.json)
        return NOT_POSSIBLE
    try:
        with showing(args.json) as tell:
            after = gateway.promotions.demote(
                promotion, tell if args.wait else None, releases_hold=args.release_hold
            )
    except NotPossible as exc:
        return refuse(exc)
    text = f"{promotion.name}: {'removed' if args.wait else 'is being removed'}"
    output.show({**to_json(after), "removed": args.wait}, text, args.json)
    return DONE


def line(facts: dict[str, int]) -> Iterator[tuple[str, str]]:
    """Yield label and value of the line for a person, if there is anything to say."""
    if counts := [f"{count} {name}" for name, count in facts.items() if count]:
        more = ": look with spillway promotion list" if facts[PromotionState.FAILED] else ""
        yield "promotions", f"{', '.join(counts)}{more}"


def _line(promotion: Promotion) -> str:
    head = (
        f"{promotion.name}  {promotion.state}  {promotion.files} files, "
        f"{size(promotion.size_bytes)}"
    )
    text = (
        f"{head}  {display(promotion.source)}  ({promotion.by}, {moment(promotion.asked_ns)[:10]})"
    )
    if promotion.reason:
        text += f": {shown(promotion.reason)}"
    elif promotion.note:
        text += f": {shown(promotion.note)}"
    return "; ".join([text, *_remarks(promotion)])


def _remarks(promotion: Promotion) -> Iterator[str]:
    """Yield what is unusual of a promotion."""
    if promotion.legal_hold:
        yield "under a legal hold"
    if promotion.run is None:
        yield "no rule recognised it as a checkpoint"
    if promotion.state == PromotionState.DONE and not promotion.is_tagged:
        yield "its objects have no tag"
