"""`spillway policy`: sets policies of retention, and shows what they do."""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway import clock, early
from gateway.cli import result, retention, table, verbs
from gateway.control.gateway import Gateway
from gateway.control.policies import Policies, StoredVersion, Version
from gateway.control.retention import Action, Approval
from gateway.errors import NotThere, PolicyError, UserError
from gateway.escapes import display
from gateway.retention import policy
from gateway.text import shown
from gateway.units import size

SHOWN = 50
COLUMNS = ("policy", "state", "since", "by", "says")
FATES = ("keep", "delete", "evict", "move")
ASKED_COLUMNS = ("plan", ">checkpoints", ">size", "asked", "answer")
DONE_COLUMNS = ("when", "what", "checkpoint", "result", "why", "by")
_Act = Callable[[Policies, argparse.Namespace], int]


def arguments(parser: argparse.ArgumentParser) -> None:
    add = verbs.adder(parser)

    def verb(name: str, text: str, act: _Act, *options: tuple[str, dict[str, Any]]) -> None:
        sub = add(name, text, act)
        for option, details in options:
            sub.add_argument(option, **details)

    as_json = ("--json", {"action": "store_true", "help": "the same facts as JSON"})
    done = ("--json", {"action": "store_true", "help": result.HELP})
    name = ("name", {"metavar": "NAME"})
    number = {"type": int, "metavar": "N"}
    file = {"metavar": "FILE"}
    verb("list", "the policies that are in force", _list, as_json)
    verb("show", "one policy", _show, as_json, name, ("--version", number))
    verb("history", "all versions of all policies", _history, as_json)
    verb("set", "store the policies of a file (-: standard input)", _set, done, ("file", file))
    verb("remove", "remove a policy; its versions stay in the history", _remove, done, name)
    verb("enable", "have a policy keep and delete again", _enable, done, name)
    verb("disable", "have a policy neither keep nor delete", _disable, done, name)
    verb(
        *("plan", "what becomes of each checkpoint, and why", _plan, as_json),
        ("--policy", {**file, "help": "with the policies of this file, which are not stored"}),
        ("--run", {"metavar": "RUN", "dest": "run_name", "help": "show only this run"}),
        ("--fate", {"choices": FATES, "help": "show only these"}),
    )
    plan = ("plan", {"metavar": "PLAN"})
    verb("approve", "approve the deletions that a plan asks about", _approve, done, plan)
    limit = {**number, "default": SHOWN, "help": f"the last N actions (default {SHOWN})"}
    only = ("--run", {"metavar": "RUN", "dest": "run_name", "help": "only this run"})
    verb("log", "what was done, when, and by which policy", _log, as_json, ("--limit", limit), only)
    confirm = {"action": "store_true", "help": "the clock of this machine is right"}
    verb("clock", "the time to which ages are counted", _clock, as_json, ("--confirm", confirm))
    verb("approvals", "the plans that are or were asked about", _approvals, as_json)
    verb(
        "validate",
        "check the policies of a file, and store none",
        _validate,
        as_json,
        ("file", file),
    )


def run(args: argparse.Namespace, gateway: Gateway) -> int:
    """Run one verb. Returns its exit status. Raises UserError."""
    act: _Act = args.act
    return act(gateway.policies, args)


def _list(policies: Policies, args: argparse.Namespace) -> int:
    return _show_versions(list(policies.every()), args)


def _history(policies: Policies, args: argparse.Namespace) -> int:
    return _show_versions(list(policies.history()), args)


def _show_versions(found: list[Version], args: argparse.Namespace) -> int:
    nothing = "there are no policies: spillway policy set FILE"
    return table.show_facts(found, args.json, COLUMNS, _cells, _line, nothing)


def _show(policies: Policies, args: argparse.Namespace) -> int:
    found = [one for one in policies.versions(args.name) if args.version in (None, one.version)]
    if not found:
        raise NotThere(f"policy {args.name} has no version {args.version}: spillway policy history")
    name, state, when, author, _told = _cells(found[-1])
    says = [f"  {line}" for line in _says(found[-1])]
    text = "\n".join([f"{name}  {state}  {when} by {author}", *says])
    result.show(found[-1], text, args.json)
    return 0


def _set(policies: Policies, args: argparse.Namespace) -> int:
    stored = policies.set(read(args.file))
    with result.Results(args.json) as results:
        for one in stored:
            results.add(one, _change(one))
    if not args.json:
        print("spillway policy plan shows what becomes of each checkpoint")
    return 0


def _remove(policies: Policies, args: argparse.Namespace) -> int:
    return _show_changed(policies.remove(args.name), args)


def _enable(policies: Policies, args: argparse.Namespace) -> int:
    return _show_changed(policies.switch(args.name, is_enabled=True), args)


def _disable(policies: Policies, args: argparse.Namespace) -> int:
    return _show_changed(policies.switch(args.name, is_enabled=False), args)


def _show_changed(one: StoredVersion, args: argparse.Namespace) -> int:
    result.show(one, _change(one), args.json)
    return 0


def _change(one: StoredVersion) -> str:
    return _line(one) if one.changed else f"{one.name}: unchanged"


def _plan(policies: Policies, args: argparse.Namespace) -> int:
    others = [] if args.policy is None else read(args.policy)
    plan = policies.plan(others, args.run_name, args.fate)
    if args.json:
        result.print_json(plan)
    else:
        retention.show(plan)
    return 0


def _approve(policies: Policies, args: argparse.Namespace) -> int:
    one = policies.approve(args.plan)
    text = f"{one.plan}: approved; the gateway deletes these checkpoints within minutes"
    result.show(one, text, args.json)
    return 0


def _log(policies: Policies, args: argparse.Namespace) -> int:
    found = policies.log(args.run_name, max(0, args.limit))
    if args.json:
        result.print_json(found)
        return 0
    rows = [_done(one) for one in reversed(found)]
    if rows:
        table.show(DONE_COLUMNS, rows, map(_done_line, rows))
    return 0


def _done(one: Action) -> tuple[str, ...]:
    when, ended = retention.moment(one.began_ns), one.result or "under way"
    return when, one.what, display(one.path), ended, one.reason, one.author


def _done_line(cells: tuple[str, ...]) -> str:
    when, what, path, result, reason, author = cells
    return f"{when}  {what:<10} {path}: {result}: {reason} [{author}]"


def _clock(policies: Policies, args: argparse.Namespace) -> int:
    time = policies.confirm_clock() if args.confirm else policies.clock()
    ahead_ns = int(time.clock_ahead_seconds * clock.NS)
    text = f"ages are counted to {retention.moment(time.ages_until_ns)}"
    if ahead_ns:
        text += f"\n{retention.clock_text(ahead_ns)}"
    result.show(time, text, args.json)
    return 1 if ahead_ns else 0


def read(file: str) -> list[policy.Policy]:
    """Read the policies of a file, TOML or JSON. Raises UserError."""
    try:
        return policy.read(document_of(file))
    except PolicyError as exc:
        raise UserError(f"{file}: {exc}") from None


def document_of(file: str) -> dict[str, Any]:
    """Read a file, TOML or JSON (-: standard input). Raises UserError."""
    try:
        text = sys.stdin.read() if file == "-" else early.place(Path(file)).read_text("utf-8")
    except OSError as exc:
        raise UserError(f"cannot read {file}: {exc.strerror}: check the path") from None
    except UnicodeDecodeError:
        raise UserError(f"{file} is not UTF-8: correct it") from None
    try:
        is_json = text.lstrip().startswith("{")
        found: dict[str, Any] = json.loads(text) if is_json else tomllib.loads(text)
    except (ValueError, RecursionError) as exc:
        raise UserError(f"{file} is neither TOML nor JSON: {exc}: correct it") from None
    return found


def _cells(one: Version) -> tuple[str, ...]:
    state = "enabled" if one.enabled else "disabled"
    state = "removed" if one.document is None else state
    when = retention.moment(one.created_ns)
    return f"{one.name} v{one.version}", state, when, one.author, ", ".join(_says(one))


def _says(one: Version) -> list[str]:
    says = one.document or {}
    return [f"{key} = {json.dumps(value)}" for key, value in says.items() if key != "name"]


def _line(one: Version) -> str:
    name, state, when, author, told = _cells(one)
    return f"{name}  {state:<8}  {when} by {author}  {told}".rstrip()


def _approvals(policies: Policies, args: argparse.Namespace) -> int:
    nothing = "no plan has asked for an approval yet"
    found = policies.approvals()
    return table.show_facts(found, args.json, ASKED_COLUMNS, _asked, _asked_line, nothing)


def _asked(one: Approval) -> tuple[str, ...]:
    answer = f"waits: spillway policy approve {one.plan}"
    if one.approved_ns is not None:
        answer = f"approved {retention.moment(one.approved_ns)} by {shown(one.author or '?')}"
    asked = retention.moment(one.asked_ns)
    return one.plan, f"{one.checkpoints:,}", size(one.bytes), asked, answer


def _asked_line(one: Approval) -> str:
    plan, checkpoints, length, asked, answer = _asked(one)
    return f"{plan}  {checkpoints} checkpoints, {length}, asked {asked}: {answer}"


def _validate(policies: Policies, args: argparse.Namespace) -> int:
    found = policies.validate(document_of(args.file))
    text = f"{args.file}: {'valid' if found.valid else found.error}"
    result.show(found, text, args.json)
    return int(not found.valid)
