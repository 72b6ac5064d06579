"""Generator of docs/reference/cli.md: ``python -m gateway.cli.reference`` prints it.

The text is made of the parser and the examples.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator

from gateway.cli import target
from gateway.cli.examples import EXAMPLES
from gateway.cli.main import (
    FOR_ANY_GATEWAY,
    NEEDS_NO_GATEWAY,
    SUBCOMMANDS,
    command_parsers,
    program_parser,
)

_HEAD = """\
# The command line

This page is made from the program, and a test compares the two:
`build/venv/bin/python -m gateway.cli.reference > docs/reference/cli.md`.
[Operating Spillway](../tasks/README.md) explains the commands by task.

Each command reads the configuration that `--config` or `SPILLWAY_CONFIG` names. The script that
`spillway completion` prints has a shell complete commands and options.

## A gateway on another machine

`spillway --gateway https://host:8780 COMMAND` asks the admin API of a gateway. The options stand
before the command.

| option | variable | meaning |
|---|---|---|
{options}

The variable `{token}` may have the token itself. A token is never an argument: all users of a
machine can read those. A `--config` goes before `{gateway}`. With a self-made certificate, copy
`admin.certificate` of the gateway, and name the copy. Plain http is only for a gateway on this
machine, or for a tunnel to it.

These commands work so: {remote}.
These need no gateway: {free}.
All others run on the gateway only.

## Scripts

With `--json` a command prints one JSON document on the standard output, of the same form from afar
as on the gateway; only `warm` without `--wait` names its job there. A command that changes
something prints what is there now, or what was done, and for several paths a list. Moments are RFC
3339 in UTC, to the nanosecond: `2026-11-23T09:30:00.123456789Z`. A path for which nothing could be
done is not in the list: why not is said on standard error, and the exit status is not 0. Without
`--json`, a list has headings also where the standard output is no terminal: its columns are then as
wide as their texts, and no text is cut or wrapped. Progress is then on standard error.

## Exit status

| exit status | meaning |
|---|---|
| 0 | done |
| 1 | the command found something that needs a person, or could not do a part of it |
| 2 | wrong usage or configuration |
| 130 | interrupted |
"""


def reference() -> str:
    """Return the whole page."""
    program = program_parser()
    head = _HEAD.format(
        options="\n".join(_options(program)),
        token=target.TOKEN,
        gateway=target.GATEWAY,
        remote=_listed(
            subcommand.name for subcommand in SUBCOMMANDS if subcommand.name in FOR_ANY_GATEWAY
        ),
        free=_listed(sorted(NEEDS_NO_GATEWAY)),
    )
    return "\n".join([head, *_sections(program)])


def _options(program: argparse.ArgumentParser) -> Iterator[str]:
    variables = {"gateway": target.GATEWAY, "token_file": target.TOKEN_FILE, "ca": target.CA}
    for action in program._actions:
        if action.dest in variables:
            meaning = (action.help or "").partition(" (SPILLWAY_")[0]
            name = f"`{action.option_strings[0]} {action.metavar}`"
            yield f"| {name} | `{variables[action.dest]}` | {_sentence(meaning)} |"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _sections(program: argparse.ArgumentParser) -> Iterator[str]:
    for name, parser in command_parsers(program).items():
        yield f"## spillway {name}\n"
        yield f"{_sentence(parser.description or '')}\n"
        yield from _usage(parser)
        for verb, sub in command_parsers(parser).items():
            yield f"### spillway {name} {verb}\n"
            yield f"{_sentence(sub.description or '')}\n"
            yield from _usage(sub)
            yield from _examples(f"{name} {verb}")
        yield from _examples(name)


def _examples(name: str) -> Iterator[str]:
    if examples := EXAMPLES.get(name):
        yield "| example | what it does |\n|---|---|"
        yield from (f"| `spillway {example.line}` | {example.does} |" for example in examples)
        yield ""


def _usage(parser: argparse.ArgumentParser) -> Iterator[str]:
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    yield f"```\n{usage}\n```\n"
    options = [
        action
        for action in parser._actions
        if action.help not in (None, argparse.SUPPRESS)
        and not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
        and action.dest != "config"
    ]
    if options:
        yield "| option | meaning |\n|---|---|"
        yield from (f"| {_option(option)} | {_text(option)} |" for option in options)
        yield ""


def _option(action: argparse.Action) -> str:
    value = action.metavar or ("" if action.nargs == 0 else action.dest.upper())
    shown = value if isinstance(value, str) else " ".join(value)
    if action.choices is not None and not action.option_strings:
        shown = " \\| ".join(map(str, action.choices))
    names = ", ".join(f"`{option_string}`" for option_string in action.option_strings)
    return f"{names} `{shown}`".strip() if shown else names


def _text(action: argparse.Action) -> str:
    help_text = (action.help or "") % {"default": action.default, "prog": "spillway"}
    escaped = help_text.replace("|", "\\|").replace("<", "&lt;")
    return _sentence(" ".join(escaped.split()))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?")) else ".")


if __name__ == "__main__":
    sys.stdout.write(reference())
