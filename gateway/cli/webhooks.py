"""Command `spillway webhook test`: sends a receiver of webhooks one event that is a test."""

from __future__ import annotations

import argparse

from gateway.cli import output
from gateway.common.errors import UserError
from gateway.common.text import shown
from gateway.config import loader


def test_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of a [[webhooks.receiver]]")
    output.option(parser)


def test(args: argparse.Namespace) -> int:
    """Send it. Returns 1 if the receiver does not take it. Raises UserError."""
    # The imports are here because httpx takes a tenth of a second.
    from admin_api.webhook_sender import WebhookReceiver, send_test

    settings = loader.load(args.config)
    tables = {table["name"]: table for table in settings.webhooks.receiver}
    if args.name not in tables:
        known = f"there are {', '.join(tables)}" if tables else "there is none"
        raise UserError(
            f"no [[webhooks.receiver]] in {settings.source} has the name {shown(args.name)}: "
            f"{known}"
        )
    delivery = send_test(settings.name, WebhookReceiver.of(tables[args.name]))
    facts = {"name": args.name, "delivered": not delivery.error, "error": delivery.error}
    text = f"{args.name} has taken the event webhook.test"
    if delivery.error:
        text = f"{args.name} has not taken the event webhook.test: {shown(delivery.error)}"
    output.show(facts, text, args.json)
    return 1 if delivery.error else 0
