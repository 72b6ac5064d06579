"""`spillway policy`: sets policies of retention, and shows what they do."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gateway import clock, config, early
from gateway.cli import result, retention, table, user, verbs
from gateway.cli.checkpoints import run_of
from gateway.control import policies
from gateway.control import retention as control_retention
from gateway.control.policies import PolicyValidity, StoredVersion, Version
from gateway.control.retention import Action, Approval, Clock, Plan
from gateway.db.engine import Database
from gateway.db.opening import opened
from gateway.errors import PolicyError, UserError
from gateway.retention import policy, store
from gateway.retention.facts import Current
from gateway.settings import Settings
from gateway.text import shown
from gateway.units import size

SHOWN = 50
COLUMNS = ("policy", "state", "since", "by", "says")
INT64_MAX = (1 << 63) - 1
FATES = ("keep", "delete", "evict", "move")
ASKED_COLUMNS = ("plan", ">checkpoints", ">size", "asked", "answer")
DONE_COLUMNS = ("when", "what", "checkpoint", "result", "why", "by")
_Act = Callable[[Settings, Database, argparse.Namespace], int]


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


def run(args: argparse.Namespace) -> int:
    """Run one verb. Returns its exit status. Raises UserError."""
    settings = config.load(args.config)
    act: _Act = args.act
    with opened(settings.database_url) as database:
        return act(settings, database, args)


def _list(_settings: Settings, database: Database, args: argparse.Namespace) -> int:
    with database.reading() as session:
        found = [one for one in store.versions(session) if one.document is not None]
    return show_list([policies.model(one) for one in found], args.json)


def show_list(found: list[Version], as_json: bool) -> int:
    """Print versions of policies. Returns the exit status."""
    return table.show_facts(
        found, as_json, COLUMNS, _cells, _line, "there are no policies: spillway policy set FILE"
    )


def _show(_settings: Settings, database: Database, args: argparse.Namespace) -> int:
    with database.reading() as session:
        found = [one for one in store.history(session) if one.name == args.name]
    wanted = [one for one in found if args.version in (None, one.version)]
    if not wanted:
        raise UserError(policies.missing(args.name))
    return show_one(policies.model(wanted[-1]), args.json)


def show_one(one: Version, as_json: bool) -> int:
    """Print a version of a policy. Returns the exit status."""
    name, state, when, author, _told = _cells(one)
    says = [f"  {line}" for line in _says(one)]
    text = "\n".join([f"{name}  {state}  {when} by {author}", *says])
    result.show(one, text, as_json)
    return 0


def _history(_settings: Settings, database: Database, args: argparse.Namespace) -> int:
    with database.reading() as session:
        found = store.history(session)
    return show_list([policies.model(one) for one in found], args.json)


def _set(_settings: Settings, database: Database, args: argparse.Namespace) -> int:
    given = read(args.file)
    author = user.name()
    with database.writing() as session:
        stored = [
            policies.stored(session, one.name, store.put(session, one, author)) for one in given
        ]
    return show_stored(stored, args.json)


def show_stored(stored: Sequence[StoredVersion], as_json: bool) -> int:
    """Print each policy as it is now, as ``show_changed`` does. Returns the exit status."""
    with result.Results(as_json) as results:
        for one in stored:
            results.add(one, _change(one))
    if not as_json:
        print("spillway policy plan shows what becomes of each checkpoint")
    return 0


def show_changed(one: StoredVersion, as_json: bool) -> int:
    """Print a policy as it is now. Returns the exit status."""
    result.show(one, _change(one), as_json)
    return 0


def _change(one: StoredVersion) -> str:
    return _line(one) if one.changed else f"{one.name}: unchanged"


def _remove(_settings: Settings, database: Database, args: argparse.Namespace) -> int:
    with database.writing() as session, policies.found(args.name):
        made = policies.stored(session, args.name, store.remove(session, args.name, user.name()))
    return show_changed(made, args.json)


def _enable(_settings: Settings, database: Database, args: argparse.Namespace) -> int:
    return _switch(database, args, is_enabled=True)


def _disable(_settings: Settings, database: Database, args: argparse.Namespace) -> int:
    return _switch(database, args, is_enabled=False)


def _switch(database: Database, args: argparse.Namespace, *, is_enabled: bool) -> int:
    with database.writing() as session, policies.found(args.name):
        switched = store.switch(session, args.name, is_enabled, user.name())
        made = policies.stored(session, args.name, switched)
    return show_changed(made, args.json)


def _plan(settings: Settings, database: Database, args: argparse.Namespace) -> int:
    others = [] if args.policy is None else read(args.policy)
    planned = control_retention.planned(settings, database, [Current(one, 0) for one in others])
    run_name = run_of(settings.nfs.export, args.run_name)
    plan = control_retention.model(settings, planned, run_name, fate=args.fate)
    return show_plan(plan, args.json)


def show_plan(plan: Plan, as_json: bool) -> int:
    """Print a plan. Returns the exit status."""
    if as_json:
        result.print_json(plan)
    else:
        retention.show(plan)
    return 0


def _approve(settings: Settings, database: Database, args: argparse.Namespace) -> int:
    made = control_retention.approve(settings, database, args.plan, user.name())
    return show_approval(control_retention.approval(made), args.json)


def show_approval(one: Approval, as_json: bool) -> int:
    """Print that a plan is approved. Returns the exit status."""
    text = f"{one.plan}: approved; the gateway deletes these checkpoints within minutes"
    result.show(one, text, as_json)
    return 0


def _log(settings: Settings, database: Database, args: argparse.Namespace) -> int:
    with database.reading() as session:
        run_name = run_of(settings.nfs.export, args.run_name)
        wanted = None if run_name is None else os.fsencode(run_name)
        found = control_retention.actions(session, wanted, INT64_MAX, max(0, args.limit))
    return show_log([control_retention.action(settings, one) for one in found], args.json)


def show_log(found: list[Action], as_json: bool) -> int:
    """Print what was done. Returns the exit status. Parameters: found, the newest first."""
    if as_json:
        result.print_json(found)
        return 0
    rows = [_done(one) for one in reversed(found)]
    if rows:
        table.show(DONE_COLUMNS, rows, map(_done_line, rows))
    return 0


def _done(one: Action) -> tuple[str, ...]:
    when, ended = retention.moment(one.began_ns), one.result or "under way"
    return when, one.what, one.path, ended, one.reason, one.author


def _done_line(cells: tuple[str, ...]) -> str:
    when, what, path, result, reason, author = cells
    return f"{when}  {what:<10} {path}: {result}: {reason} [{author}]"


def _clock(_settings: Settings, database: Database, args: argparse.Namespace) -> int:
    if args.confirm:
        control_retention.confirm_clock(database)
    return show_clock(control_retention.read_clock(database), args.json)


def show_clock(time: Clock, as_json: bool) -> int:
    """Print the time to which ages are counted. Returns the exit status."""
    ahead_ns = int(time.clock_ahead_seconds * clock.NS)
    text = f"ages are counted to {retention.moment(time.ages_until_ns)}"
    if ahead_ns:
        text += f"\n{retention.clock_text(ahead_ns)}"
    result.show(time, text, as_json)
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


def _approvals(_settings: Settings, database: Database, args: argparse.Namespace) -> int:
    with database.reading() as session:
        found = [control_retention.approval(one) for one in store.approvals(session)]
    return show_approvals(found, args.json)


def show_approvals(found: list[Approval], as_json: bool) -> int:
    """Print the plans that are or were asked about. Returns the exit status."""
    nothing = "no plan has asked for an approval yet"
    return table.show_facts(found, as_json, ASKED_COLUMNS, _asked, _asked_line, nothing)


def _asked(one: Approval) -> tuple[str, ...]:
    answer = f"waits: spillway policy approve {one.plan}"
    if one.approved_ns is not None:
        answer = f"approved {retention.moment(one.approved_ns)} by {shown(one.author or '?')}"
    asked = retention.moment(one.asked_ns)
    return one.plan, f"{one.checkpoints:,}", size(one.bytes), asked, answer


def _asked_line(one: Approval) -> str:
    plan, checkpoints, length, asked, answer = _asked(one)
    return f"{plan}  {checkpoints} checkpoints, {length}, asked {asked}: {answer}"


def _validate(_settings: Settings, _database: Database, args: argparse.Namespace) -> int:
    return show_validity(policies.validity(document_of(args.file)), args)


def show_validity(found: PolicyValidity, args: argparse.Namespace) -> int:
    """Print whether policies could be stored. Returns the exit status."""
    text = f"{args.file}: {'valid' if found.valid else found.error}"
    result.show(found, text, args.json)
    return int(not found.valid)
