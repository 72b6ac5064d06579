"""Checks of configuration values: each returns what is wrong with a value, or None. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gateway.common.network import is_loopback
from gateway.common.network import parse as parse_client
from gateway.common.units import BYTES, parse

Check = Callable[[Any], str | None]

_SIZE = re.compile("([0-9]{1,9})([MGT]iB)")


def at_least(low: float) -> Check:
    return lambda value: None if value >= low else f"must be at least {low:g}"


def between(low: float, high: float) -> Check:
    return lambda value: None if low <= value <= high else f"must be between {low:g} and {high:g}"


def absolute(value: Path) -> str | None:
    return None if value.is_absolute() else "must be an absolute path"


def export_path(value: str) -> str | None:
    ok = value.startswith("/") and len(value) > 1 and not value.endswith("/")
    return None if ok and not set(value) & set('";{}#\n ') else "must look like /checkpoints"


def prefix(value: str) -> str | None:
    if value.startswith("/") or value.endswith("/") or "//" in value:
        return "must have no / at its ends and no //"
    if {".", ".."} & set(value.split("/")) or not value.isprintable():
        return "must have no . or .. between slashes, and no control characters"
    return None if len(value.encode()) <= 512 else "must have at most 512 bytes"


def not_empty(value: str) -> str | None:
    return None if value else "must not be empty"


def shown_name(value: str) -> str | None:
    ok = len(value) <= 64 and not re.search("[\x00-\x1f\x7f]", value)
    return None if ok else "must have at most 64 characters, none of control (empty: the host's)"


def in_the_clear(endpoint_url: str) -> str | None:
    """Return what a person must know of a bucket that is reached without TLS, or None."""
    parts = urlsplit(endpoint_url)
    if parts.scheme != "http" or is_loopback(parts.hostname or ""):
        return None
    return (
        "is http: each host on the way can read and change the data: use https if the store has it"
    )


def url(value: str) -> str | None:
    if value and not value.startswith(("http://", "https://")):
        return "must start with http:// or https:// (empty: AWS)"
    if "@" in urlsplit(value).netloc:
        return "must have no user and password: write them to the credentials file"
    return None


def is_address(value: str) -> bool:
    """Return whether a URL names its host by an IP address."""
    try:
        ip_address(urlsplit(value).hostname or "")
    except ValueError:
        return False
    return True


def weights(value: tuple[str, ...]) -> dict[str, int]:
    """Parse entries of the form ``NAME=WEIGHT``, with weights from 1 to 1000. Raises ValueError."""
    weight_by_name = {}
    for item in value:
        name, equals, text = item.rpartition("=")
        if not (name and equals and text.isascii() and text.isdigit() and 1 <= int(text) <= 1000):
            raise ValueError(item)
        weight_by_name[name] = int(text)
    return weight_by_name


def weights_of(value: tuple[str, ...]) -> str | None:
    try:
        weights(value)
    except ValueError as exc:
        return f'has {exc}; each must look like "NAME=4", from 1 to 1000'
    return None


def sizes(value: tuple[str, ...]) -> dict[str, int]:
    """Parse entries of the form ``NAME=500GiB``. Raises ValueError."""
    size_by_name = {}
    for item in value:
        name, equals, text = item.rpartition("=")
        match = _SIZE.fullmatch(text)
        if not (name and equals and match):
            raise ValueError(item)
        size_by_name[name] = int(match[1]) * BYTES[match[2]]
    return size_by_name


def sizes_of(value: tuple[str, ...]) -> str | None:
    try:
        sizes(value)
    except ValueError as exc:
        return f'has {exc}; each must look like "NAME=500GiB" (MiB, GiB or TiB)'
    return None


def schedule(value: tuple[str, ...]) -> str | None:
    for entry in value:
        try:
            parse(entry)
        except ValueError as exc:
            return str(exc)
    return None


def clients(value: tuple[str, ...]) -> str | None:
    for entry in value:
        try:
            parse_client(entry)
        except ValueError as exc:
            return str(exc)
    return None if value else "must have an entry; without one no host could mount"


def one_of(values: Iterable[str]) -> Check:
    known = tuple(values)
    return lambda value: None if value in known else f"must be one of {', '.join(known)}"


def some_of(values: Iterable[str]) -> Check:
    known = tuple(values)

    def check(value: tuple[str, ...]) -> str | None:
        if value and set(value) <= set(known) and len(set(value)) == len(value):
            return None
        return f"must have one or more of {', '.join(known)}, each once"

    return check


def word(value: str) -> str | None:
    return None if re.fullmatch("[A-Z0-9_]*", value) else "must look like STANDARD_IA"


def ca_bundle(value: str) -> str | None:
    return None if value == "" or value.startswith("/") else "must be an absolute path"


SYSLOG = "syslog"


def audit_target(value: str) -> str | None:
    ok = value in ("", SYSLOG) or value.startswith("/")
    return None if ok else "must be syslog, or the absolute path of a file (empty: nowhere)"


def encryption(value: str) -> str | None:
    known = ("", "AES256", "aws:kms", "aws:kms:dsse")
    return None if value in known else "must be AES256, aws:kms or aws:kms:dsse (empty: none)"


_RULE_KEYS = ("name", "path", "files", "marker", "quiet_seconds")
FRAMEWORKS = {
    *("deepspeed", "megatron", "verl", "orbax", "lightning", "nemo", "accelerate"),
    *("dcp", "trainer", "index", "peft", "file"),
}
"""The names of the rules that are there anyway."""
_RULE_NAME = re.compile("[a-z][a-z0-9-]{0,31}")


def rules(value: tuple[Mapping[str, Any], ...]) -> str | None:
    """Check the rules that recognise checkpoints."""
    seen = set()
    for rule in value:
        name = rule.get("name")
        if not isinstance(name, str) or not _RULE_NAME.fullmatch(name):
            return 'has a rule without a name; it must look like name = "our-trainer"'
        if name in FRAMEWORKS:
            return f"has a rule with the name {name}, which is that of a known framework"
        if name in seen:
            return f"has two rules with the name {name}"
        seen.add(name)
        if (problem := _rule(rule)) is not None:
            return f"has the rule {name}, which {problem}"
    return None


def _rule(rule: Mapping[str, Any]) -> str | None:
    for key in rule:
        if key not in _RULE_KEYS:
            return f"has the key {key}; there are {', '.join(_RULE_KEYS)}"
    path = rule.get("path")
    if not isinstance(path, str) or path.count("{step}") != 1:
        return 'must have a path like "{run}/step-{step}", with {step} once'
    return _rule_path(path) or _rule_files(rule.get("files", 1)) or _rule_end(rule)


def _rule_path(path: str) -> str | None:
    if path.count("{step}") > 1 or path.count("{run}") > 1:
        return "must have {step} and {run} at most once each in its path"
    if {"", ".", ".."} & set(path.split("/")):
        return "must have a path below the export, without a / at its ends, // and . or .."
    if "{" in path.replace("{step}", "").replace("{run}", ""):
        return "must have no other braces in its path than {run} and {step}"
    if "{run}{step}" in path or "{step}{run}" in path:
        return "must have something between {run} and {step}"
    return None


def _rule_files(files: Any) -> str | None:
    if isinstance(files, int) and not isinstance(files, bool):
        return None if files >= 1 else "must have files of at least 1"
    is_list = isinstance(files, list) and files
    if is_list and all(isinstance(file, str) and file for file in files):
        return None
    return 'must have files = a number, or a list of patterns like ["model-*.pt"]'


def _rule_end(rule: Mapping[str, Any]) -> str | None:
    marker, quiet = rule.get("marker", "x"), rule.get("quiet_seconds", 0)
    if not isinstance(marker, str) or not marker or "/" in marker or marker in (".", ".."):
        return "must have a marker that is one name, without a /"
    is_number = isinstance(quiet, int | float) and not isinstance(quiet, bool)
    if not is_number or not 0 <= quiet <= 86_400 * 30:
        return "must have quiet_seconds from 0 to 2592000"
    if not {"files", "marker", "quiet_seconds"} & set(rule):
        return "must say when a checkpoint is complete: files, marker or quiet_seconds"
    return None


_ACKNOWLEDGE_KEYS = ("path", "every_steps", "acknowledge")


def acknowledge_rules(value: tuple[Mapping[str, Any], ...]) -> str | None:
    """Check the rules about files whose CLOSE waits for the bucket."""
    for number, rule in enumerate(value, 1):
        if (problem := _acknowledge_rule(rule)) is not None:
            return f"has a rule (number {number}) which {problem}"
    return None


def _acknowledge_rule(rule: Mapping[str, Any]) -> str | None:
    for key in rule:
        if key not in _ACKNOWLEDGE_KEYS:
            return f"has the key {key}; there are {', '.join(_ACKNOWLEDGE_KEYS)}"
    path, steps = rule.get("path"), rule.get("every_steps", 1)
    if not isinstance(path, str):
        return 'must have a path like "{run}/step-{step}"'
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        return "must have every_steps of at least 1"
    if "every_steps" in rule and "{step}" not in path:
        return "must have {step} in its path, because it has every_steps"
    if rule.get("acknowledge", "bucket") not in ("bucket", "local"):
        return 'must have acknowledge = "bucket" or "local"'
    return _rule_path(path)


ALARM_RAISED, ALARM_CLEARED = "alarm.raised", "alarm.cleared"
COMPLETE, DURABLE, BROKEN = "checkpoint.complete", "checkpoint.durable", "checkpoint.broken"
PROMOTED, DELETED = "checkpoint.promoted", "checkpoint.deleted"
EVENTS = (COMPLETE, DURABLE, BROKEN, PROMOTED, DELETED, ALARM_RAISED, ALARM_CLEARED)
"""The events that receivers of webhooks can have."""
_EVENT_PATTERNS = (*EVENTS, "checkpoint.*", "alarm.*", "*")
_RECEIVER_KEYS = ("name", "url", "secret_file", "events")
RECEIVERS_MAX = 16


def covers(patterns: Iterable[str], event: str) -> bool:
    """Return whether a receiver with these events wants one."""
    return any(
        event == pattern or (pattern.endswith("*") and event.startswith(pattern[:-1]))
        for pattern in patterns
    )


def receivers(value: tuple[Mapping[str, Any], ...]) -> str | None:
    """Check the receivers of webhooks. What is wrong does not quote their URLs."""
    if len(value) > RECEIVERS_MAX:
        return f"must have at most {RECEIVERS_MAX} receivers"
    seen = set()
    for number, table in enumerate(value, 1):
        name = table.get("name")
        if not isinstance(name, str) or not _RULE_NAME.fullmatch(name):
            return f'has a receiver (number {number}) without a name like name = "chat"'
        if name in seen:
            return f"has two receivers with the name {name}"
        seen.add(name)
        if (problem := _receiver(table)) is not None:
            return f"has the receiver {name}, which {problem}"
    return None


def _receiver(table: Mapping[str, Any]) -> str | None:
    for key in table:
        if key not in _RECEIVER_KEYS:
            return f"has the key {key}; there are {', '.join(_RECEIVER_KEYS)}"
    address, file, events = table.get("url"), table.get("secret_file"), table.get("events", ["*"])
    if not isinstance(address, str) or not re.fullmatch(r"https?://[^/@\s]+(/\S*)?", address):
        return "must have a url like https://host/path, without user and password"
    if not isinstance(file, str) or not file.startswith("/"):
        return "must have a secret_file, an absolute path"
    is_list = isinstance(events, list) and events
    if not is_list or not all(event in _EVENT_PATTERNS for event in events):
        return f"must have events out of {', '.join(_EVENT_PATTERNS)} (without the key: all)"
    return None
