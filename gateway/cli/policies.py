"""Command `spillway policy`: sets policies of retention, shows plans, approves deletions.

Also the line about retention in `spillway status`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from gateway.catalogue.facts import NOT_MADE
from gateway.cli import options as verbs
from gateway.cli import output
from gateway.common import clock, retry
from gateway.common.errors import NotThere, PolicyError, UserError
from gateway.common.text import display, shown
from gateway.common.units import days, duration, size
from gateway.config import loader
from gateway.lifecycle.retention import policy
from gateway.service.gateway import Gateway
from gateway.service.policies import (
    Action,
    Approval,
    PendingApproval,
    PlannedCheckpoint,
    PolicyVersion,
    RetentionPlan,
    RetentionSummary,
    StoredVersion,
)

ACTION_COLUMNS = (">step", "fate", "state", ">size", "checkpoint", "why")


def show(plan: RetentionPlan) -> None:
    """Print a plan for a person."""
    for run, group in groupby(plan.checkpoints, lambda checkpoint: checkpoint.run):
        rows, title = [_action_cells(checkpoint) for checkpoint in group], display(run) or "/"
        output.show_table(ACTION_COLUMNS, rows, title=title)
    for line in _summary(plan):
        print(line)


def _summary(plan: RetentionPlan) -> Iterator[str]:
    if not plan.checkpoints:
        yield "there are no checkpoints"
    if plan.more_checkpoints:
        yield f"... and {plan.more_checkpoints:,} more: --run RUN shows those of one run"
    yield (
        f"{plan.kept:,} checkpoints are kept, {plan.deleted:,} are deleted "
        f"({size(plan.deleted_bytes)}{_waiting(plan.asked)}), {plan.evicted:,} are evicted, "
        f"{plan.moved:,} move to another storage class"
    )
    if not plan.catalogue_is_made:
        yield f"nothing is deleted: {NOT_MADE}"
    if plan.clock_ahead_seconds:
        yield clock_text(int(plan.clock_ahead_seconds * clock.NS))
    for name in plan.unused_policies:
        yield f"policy {name} selects no checkpoint"
    if plan.asked is not None:
        waits = f"{_amount(plan.asked)} wait for an approval once the policies are stored"
        yield f"{plan.why_asked}: {asked_text(plan.asked) if plan.is_stored else waits}"


def _action_cells(checkpoint: PlannedCheckpoint) -> tuple[str, ...]:
    step = "-" if checkpoint.step is None else str(checkpoint.step)
    name = display(checkpoint.path.rpartition("/")[2])
    leaves = f"; is evicted ({checkpoint.evicted_by})" if checkpoint.evicted_by else ""
    held = "; superseded, and not uploaded meanwhile" if checkpoint.superseded else ""
    moves = (
        f"; moves to {checkpoint.moves_to} ({checkpoint.moved_by})" if checkpoint.moves_to else ""
    )
    kept = f"; in {checkpoint.storage_class}" if checkpoint.storage_class else ""
    why = f"{checkpoint.why}{leaves}{moves}{kept}{held}"
    return step, checkpoint.fate, checkpoint.state, size(checkpoint.size_bytes), name, why


def _waiting(asked: PendingApproval | None) -> str:
    return f"; {asked.checkpoints:,} of them after an approval" if asked else ""


def asked_text(asked: PendingApproval) -> str:
    """Return what a person must do about a plan that is asked about."""
    return (
        f"{_amount(asked)} wait, and are deleted once a person has approved exactly these: "
        f"spillway policy approve {asked.plan}"
    )


def _amount(asked: PendingApproval) -> str:
    return f"{asked.checkpoints:,} checkpoints, {size(asked.bytes)}"


def clock_text(ahead_ns: int) -> str:
    """Return what a person must know of a clock that jumped."""
    return (
        f"the clock is {duration(ahead_ns / clock.NS)} ahead of the time that is known to have "
        "passed, and ages are counted without that; if the clock is right: spillway policy clock "
        "--confirm"
    )


def moment(time_ns: int) -> str:
    """Return a time as people write it."""
    return datetime.fromtimestamp(time_ns / clock.NS).astimezone().isoformat(" ", "seconds")


def status_lines(found: RetentionSummary) -> Iterator[tuple[str, str]]:
    """Yield label and value of each line for a person."""
    count = found.policies
    text = {0: "no policy deletes anything", 1: "1 policy"}.get(count, f"{count} policies")
    if found.last_action_ns is not None:
        result = found.last_result or "under way"
        text += f"; last action {moment(found.last_action_ns)}: {result}"
    yield "retention", text
    if found.asked is not None:
        yield "retention", "ASKS: " + asked_text(found.asked)
    if found.clock_ahead_seconds:
        yield "retention", clock_text(int(found.clock_ahead_seconds * clock.NS))


SHOWN = 50
COLUMNS = ("policy", "state", "runs", "keeps", "does", "trash grace")
HISTORY_COLUMNS = ("policy", "state", "since", "by", "says")
FATES = ("keep", "delete", "evict", "move")
ASKED_COLUMNS = ("plan", ">checkpoints", ">size", "asked", "answer")
DONE_COLUMNS = ("when", "what", "checkpoint", "result", "why", "by")
_Act = Callable[[Gateway, argparse.Namespace], int]
DONE_WORDS = {
    "trash": "deleted",
    "evict": "evicted",
    "transition": "moved",
    "undelete": "restored",
    "release": "released",
    "remove": "removed for good",
}
"""What was done, as people read it. JSON has the names of the actions."""
_GRACE = ("retention", "trash_seconds")


def arguments(parser: argparse.ArgumentParser) -> None:
    add = verbs.adder(parser)

    def verb(name: str, text: str, act: _Act, *options: tuple[str, dict[str, Any]]) -> None:
        sub = add(name, text, act)
        for option, details in options:
            sub.add_argument(option, **details)

    as_json = ("--json", {"action": "store_true", "help": "the same facts as JSON"})
    done = ("--json", {"action": "store_true", "help": output.HELP})
    name = ("name", {"metavar": "NAME"})
    number = {"type": int, "metavar": "N"}
    file = {"metavar": "FILE"}
    verb("list", "what each policy that is in force keeps and does", _list, as_json)
    verb("show", "one policy, as TOML", _show, as_json, name, ("--version", number))
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
    return act(gateway, args)


NOTHING = "there are no policies: spillway policy set FILE"


def _list(gateway: Gateway, args: argparse.Namespace) -> int:
    versions = list(gateway.policies.every())
    section, key = _GRACE
    grace = "-"
    if versions and not args.json:
        grace = duration(float(gateway.configuration().sections[section][key].value))

    def cells(version: PolicyVersion) -> tuple[str, ...]:
        return _listed_cells(version, grace)

    return output.show_facts(versions, args.json, COLUMNS, cells, NOTHING)


def _history(gateway: Gateway, args: argparse.Namespace) -> int:
    versions = list(gateway.policies.history())
    return output.show_facts(versions, args.json, HISTORY_COLUMNS, _cells, NOTHING)


def _show(gateway: Gateway, args: argparse.Namespace) -> int:
    versions = [
        version
        for version in gateway.policies.versions(args.name)
        if args.version in (None, version.version)
    ]
    if not versions:
        raise NotThere(f"policy {args.name} has no version {args.version}: spillway policy history")
    name, state, when, author, _detail = _cells(versions[-1])
    head = f"# {name}, {state}, since {when} by {author}"
    output.show(versions[-1], "\n".join([head, *_toml_of(versions[-1])]), args.json)
    return 0


def _set(gateway: Gateway, args: argparse.Namespace) -> int:
    stored = gateway.policies.set(read(args.file))
    with output.Results(args.json) as results:
        for version in stored:
            results.add(version, _change(version))
    if not args.json:
        print("spillway policy plan shows what becomes of each checkpoint")
    return 0


def _remove(gateway: Gateway, args: argparse.Namespace) -> int:
    return _show_changed(gateway.policies.remove(args.name), args)


def _enable(gateway: Gateway, args: argparse.Namespace) -> int:
    return _show_changed(gateway.policies.switch(args.name, is_enabled=True), args)


def _disable(gateway: Gateway, args: argparse.Namespace) -> int:
    return _show_changed(gateway.policies.switch(args.name, is_enabled=False), args)


def _show_changed(version: StoredVersion, args: argparse.Namespace) -> int:
    output.show(version, _change(version), args.json)
    return 0


def _change(version: StoredVersion) -> str:
    return _line(version) if version.changed else f"{version.name}: unchanged"


def _plan(gateway: Gateway, args: argparse.Namespace) -> int:
    others = [] if args.policy is None else read(args.policy)
    plan = gateway.policies.plan(others, args.run_name, args.fate)
    if args.json:
        output.print_json(plan)
    else:
        show(plan)
    return 0


def _approve(gateway: Gateway, args: argparse.Namespace) -> int:
    approval = gateway.policies.approve(args.plan)
    text = f"{approval.plan}: approved; the gateway deletes these checkpoints within minutes"
    output.show(approval, text, args.json)
    return 0


def _log(gateway: Gateway, args: argparse.Namespace) -> int:
    actions = gateway.policies.log(args.run_name, max(0, args.limit))
    if args.json:
        output.print_json(actions)
        return 0
    rows = [_done(action) for action in reversed(actions)]
    if rows:
        output.show_table(DONE_COLUMNS, rows)
    else:
        print("nothing was done yet" if args.run_name is None else "nothing was done to this run")
    return 0


def _done(action: Action) -> tuple[str, ...]:
    when, ended = moment(action.began_ns), action.result or "under way"
    word = DONE_WORDS.get(action.what, action.what)
    return when, word, display(action.path), ended, action.reason, action.author


def _clock(gateway: Gateway, args: argparse.Namespace) -> int:
    time = gateway.policies.confirm_clock() if args.confirm else gateway.policies.clock()
    ahead_ns = int(time.clock_ahead_seconds * clock.NS)
    text = f"ages are counted to {moment(time.ages_until_ns)}"
    if ahead_ns:
        text += f"\n{clock_text(ahead_ns)}"
    output.show(time, text, args.json)
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
        text = sys.stdin.read() if file == "-" else retry.place(Path(file)).read_text("utf-8")
    except OSError as exc:
        raise UserError(f"cannot read {file}: {exc.strerror}: check the path") from None
    except UnicodeDecodeError:
        raise UserError(f"{file} is not UTF-8: correct it") from None
    try:
        is_json = text.lstrip().startswith("{")
        document: dict[str, Any] = json.loads(text) if is_json else tomllib.loads(text)
    except (ValueError, RecursionError) as exc:
        raise UserError(f"{file} is neither TOML nor JSON: {exc}: correct it") from None
    return document


def _cells(version: PolicyVersion) -> tuple[str, ...]:
    state = "enabled" if version.enabled else "disabled"
    state = "removed" if version.document is None else state
    when = moment(version.created_ns)
    says = ""
    if version.document is not None:
        keeps, does = (", ".join(words) or "nothing" for words in _words(version.document))
        says = f"{_selected(version.document)}: keeps {keeps}; {does}"
    return f"{version.name} v{version.version}", state, when, version.author, says


def _listed_cells(version: PolicyVersion, grace: str) -> tuple[str, ...]:
    """Return the row of a policy in force. Args: grace, for which the trash has what it deletes."""
    document = version.document or {}
    keeps, does = _words(document)
    name, state, *_since = _cells(version)
    deletes = DELETES in does
    return (
        *(name, state, _selected(document), ", ".join(keeps) if deletes else "all"),
        *(", ".join(does), grace if deletes else "-"),
    )


def _selected(document: Mapping[str, Any]) -> str:
    """Return the patterns of the runs and paths that a policy selects."""
    path = document.get("path")
    text = document.get("run", "*") + ("" if path is None else f", only paths {path}")
    return shown(text)


DELETES = "deletes the others"


def _words(document: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return what a policy keeps, and what it does, in words."""
    keeps, does = [], []
    if newest := document.get("keep_newest"):
        keeps.append("the newest" if newest == 1 else f"the newest {newest:,}")
    if steps := document.get("keep_every_steps"):
        keeps.append(f"one every {steps:,} steps")
    if best := document.get("keep_best"):
        which = "lowest" if best["best"] == "min" else "highest"
        what = f"{best['number']:,} with the {which} {best['key']} in {best['file']}"
        keeps.append(shown(f"the {what}"))
    tiers, age = document.get("thin", []), document.get("delete_after_days")
    if tiers:
        keeps.append(f"those younger than {days(tiers[0]['older_than_days'])}")
    until = "" if age is None else f", up to {days(age)}"
    keeps += [
        f"one every {tier['one_per_hours']:g} h of those older than {days(tier['older_than_days'])}"
        + (until if tier is tiers[-1] else "")
        for tier in tiers
    ]
    if age is not None and not tiers:
        keeps.append(f"those younger than {days(age)}")
    if keeps:
        does.append(DELETES)
    if (hours := document.get("evict_after_hours")) is not None:
        does.append(f"evicts what was unused for {hours:g} h")
    if (storage_class := document.get("storage_class")) is not None:
        after = days(document["transition_after_days"])
        does.append(f"moves objects to {storage_class} after {after}")
    return keeps, does


def _toml_of(version: PolicyVersion) -> Iterator[str]:
    """Yield the lines of a policy as ``spillway policy set`` takes them."""
    if version.document is None:
        return
    yield "[[policy]]"
    for key, value in version.document.items():
        yield f"{key} = {''.join(map(_escaped, loader.to_toml(value)))}"


def _escaped(character: str) -> str:
    """Escape a character that a terminal would obey. TOML reads it back."""
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def _line(version: PolicyVersion) -> str:
    name, state, when, author, says = _cells(version)
    return f"{name}  {state}  {when} by {author}  {says}".rstrip()


def _approvals(gateway: Gateway, args: argparse.Namespace) -> int:
    nothing = "no plan has asked for an approval yet"
    approvals = gateway.policies.approvals()
    return output.show_facts(approvals, args.json, ASKED_COLUMNS, _asked, nothing)


def _asked(approval: Approval) -> tuple[str, ...]:
    answer = f"waits: spillway policy approve {approval.plan}"
    if approval.approved_ns is not None:
        answer = f"approved {moment(approval.approved_ns)} by {shown(approval.author or '?')}"
    asked = moment(approval.asked_ns)
    return approval.plan, f"{approval.checkpoints:,}", size(approval.bytes), asked, answer


def _validate(gateway: Gateway, args: argparse.Namespace) -> int:
    validity = gateway.policies.validate(document_of(args.file))
    text = f"{args.file}: {'valid' if validity.valid else validity.error}"
    output.show(validity, text, args.json)
    return int(not validity.valid)
