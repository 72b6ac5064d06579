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
from gateway.db.compiled import Session
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
    return show_list([policies.facts(one) for one in found], args.json)


def show_list(found: list[dict[str, Any]], as_json: bool) -> int:
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
    return show_one(policies.facts(wanted[-1]), args.json)


def show_one(facts: dict[str, Any], as_json: bool) -> int:
    """Print a version of a policy. Returns the exit status."""
    name, state, when, author, _told = _cells(facts)
    says = [f"  {one}" for one in _says(facts)]
    text = "\n".join([f"{name}  {state}  {when} by {author}", *says])
    result.show(facts, text, as_json)
    return 0


def _history(_settings: Settings, database: Database, args: argparse.Namespace) -> int:
    with database.reading() as session:
        found = store.history(session)
    return show_list([policies.facts(one) for one in found], args.json)


def _set(_settings: Settings, database: Database, args: argparse.Namespace) -> int:
    given = read(args.file)
    author = user.name()
    with database.writing() as session:
        stored = [_changed(session, one.name, store.put(session, one, author)) for one in given]
    return show_stored(stored, args.json)


def show_stored(stored: Sequence[dict[str, Any]], as_json: bool) -> int:
    """Print each policy as it is now, as ``show_changed`` does. Returns the exit status."""
    with result.Results(as_json) as results:
        for one in stored:
            results.add(one, _change(one))
    if not as_json:
        print("spillway policy plan shows what becomes of each checkpoint")
    return 0


def show_changed(version: dict[str, Any], as_json: bool) -> int:
    """Print a policy as it is now. Returns the exit status. Parameters: version, its facts, and
    whether they were ``changed``."""
    result.show(version, _change(version), as_json)
    return 0


def _change(version: dict[str, Any]) -> str:
    return _line(version) if version["changed"] else f"{version['name']}: unchanged"


def _changed(session: Session, name: str, made: store.Version | None) -> dict[str, Any]:
    """Return the facts about a policy after a change. Parameters: made, its new version, or None if
    it is unchanged."""
    now = made or policies.current(session, name)
    assert now is not None
    return {**policies.facts(now), "changed": made is not None}


def _remove(_settings: Settings, database: Database, args: argparse.Namespace) -> int:
    with database.writing() as session, policies.found(args.name):
        made = _changed(session, args.name, store.remove(session, args.name, user.name()))
    return show_changed(made, args.json)


def _enable(_settings: Settings, database: Database, args: argparse.Namespace) -> int:
    return _switch(database, args, is_enabled=True)


def _disable(_settings: Settings, database: Database, args: argparse.Namespace) -> int:
    return _switch(database, args, is_enabled=False)


def _switch(database: Database, args: argparse.Namespace, *, is_enabled: bool) -> int:
    with database.writing() as session, policies.found(args.name):
        switched = store.switch(session, args.name, is_enabled, user.name())
        made = _changed(session, args.name, switched)
    return show_changed(made, args.json)


def _plan(settings: Settings, database: Database, args: argparse.Namespace) -> int:
    others = [] if args.policy is None else read(args.policy)
    planned = control_retention.planned(settings, database, [Current(one, 0) for one in others])
    run_name = run_of(settings.nfs.export, args.run_name)
    facts = control_retention.facts(settings, planned, run_name, fate=args.fate)
    return show_plan(facts, args.json)


def show_plan(facts: dict[str, Any], as_json: bool) -> int:
    """Print a plan. Returns the exit status."""
    if as_json:
        print(json.dumps(facts, indent=2))
    else:
        retention.show(facts)
    return 0


def _approve(settings: Settings, database: Database, args: argparse.Namespace) -> int:
    made = control_retention.approve(settings, database, args.plan, user.name())
    return show_approval(control_retention.approval(made), args.json)


def show_approval(one: dict[str, Any], as_json: bool) -> int:
    """Print that a plan is approved. Returns the exit status."""
    text = f"{one['plan']}: approved; the gateway deletes these checkpoints within minutes"
    result.show(one, text, as_json)
    return 0


def _log(settings: Settings, database: Database, args: argparse.Namespace) -> int:
    with database.reading() as session:
        run_name = run_of(settings.nfs.export, args.run_name)
        wanted = None if run_name is None else os.fsencode(run_name)
        found = control_retention.actions(session, wanted, INT64_MAX, max(0, args.limit))
    return show_log([control_retention.action(settings, one) for one in found], args.json)


def show_log(found: list[dict[str, Any]], as_json: bool) -> int:
    """Print what was done. Returns the exit status. Parameters: found, the newest first."""
    if as_json:
        print(json.dumps(found, indent=2))
        return 0
    rows = [_done(one) for one in reversed(found)]
    if rows:
        table.show(DONE_COLUMNS, rows, map(_done_line, rows))
    return 0


def _done(one: dict[str, Any]) -> tuple[str, ...]:
    when, result = retention.moment(one["began_ns"]), one["result"] or "under way"
    return when, one["what"], one["path"], result, one["reason"], one["author"]


def _done_line(cells: tuple[str, ...]) -> str:
    when, what, path, result, reason, author = cells
    return f"{when}  {what:<10} {path}: {result}: {reason} [{author}]"


def _clock(_settings: Settings, database: Database, args: argparse.Namespace) -> int:
    if args.confirm:
        control_retention.confirm_clock(database)
    time = control_retention.counted_time(database)
    return show_clock(control_retention.clock_facts(time), args.json)


def show_clock(facts: dict[str, Any], as_json: bool) -> int:
    """Print the time to which ages are counted. Returns the exit status."""
    ahead_ns = int(facts["clock_ahead_seconds"] * clock.NS)
    text = f"ages are counted to {retention.moment(facts['ages_until_ns'])}"
    if ahead_ns:
        text += f"\n{retention.clock_text(ahead_ns)}"
    result.show(facts, text, as_json)
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


def _cells(one: dict[str, Any]) -> tuple[str, ...]:
    state = "enabled" if one["enabled"] else "disabled"
    state = "removed" if one["document"] is None else state
    when = retention.moment(one["created_ns"])
    return f"{one['name']} v{one['version']}", state, when, one["author"], ", ".join(_says(one))


def _says(one: dict[str, Any]) -> list[str]:
    says = one["document"] or {}
    return [f"{key} = {json.dumps(value)}" for key, value in says.items() if key != "name"]


def _line(one: dict[str, Any]) -> str:
    name, state, when, author, told = _cells(one)
    return f"{name}  {state:<8}  {when} by {author}  {told}".rstrip()


def _approvals(_settings: Settings, database: Database, args: argparse.Namespace) -> int:
    with database.reading() as session:
        found = [control_retention.approval(one) for one in store.approvals(session)]
    return show_approvals(found, args.json)


def show_approvals(found: list[dict[str, Any]], as_json: bool) -> int:
    """Print the plans that are or were asked about. Returns the exit status."""
    nothing = "no plan has asked for an approval yet"
    return table.show_facts(found, as_json, ASKED_COLUMNS, _asked, _asked_line, nothing)


def _asked(one: dict[str, Any]) -> tuple[str, ...]:
    answer = f"waits: spillway policy approve {one['plan']}"
    if one["approved_ns"] is not None:
        answer = f"approved {retention.moment(one['approved_ns'])} by {shown(one['author'] or '?')}"
    asked = retention.moment(one["asked_ns"])
    return one["plan"], f"{one['checkpoints']:,}", size(one["bytes"]), asked, answer


def _asked_line(one: dict[str, Any]) -> str:
    plan, checkpoints, length, asked, answer = _asked(one)
    return f"{plan}  {checkpoints} checkpoints, {length}, asked {asked}: {answer}"


def _validate(_settings: Settings, _database: Database, args: argparse.Namespace) -> int:
    return show_validity(validity(document_of(args.file)), args)


def validity(document: dict[str, Any]) -> dict[str, Any]:
    """Return whether the policies of a document could be stored, and if not, why."""
    try:
        policy.read(document)
    except PolicyError as exc:
        return {"valid": False, "error": shown(str(exc))}
    return {"valid": True, "error": None}


def show_validity(facts: dict[str, Any], args: argparse.Namespace) -> int:
    """Print whether policies could be stored. Returns the exit status."""
    text = f"{args.file}: {'valid' if facts['valid'] else facts['error']}"
    result.show(facts, text, args.json)
    return int(not facts["valid"])
