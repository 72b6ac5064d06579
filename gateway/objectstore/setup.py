"""How the bucket is set up: versions, Object Lock, lifecycle; and the one rule we ask for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from gateway.errors import BucketError, ObjectRefused, StoreRefused
from gateway.objectstore import client
from gateway.settings import Settings

RULE_ID = "spillway-abort-incomplete-uploads"
ABORT_DAYS = 7
"""The drain resumes an upload that was interrupted, so this is well beyond any outage."""
_NONE = {"NoSuchLifecycleConfiguration", "ObjectLockConfigurationNotFoundError"}
_NOT_TOLD = {"NotImplemented", "MethodNotAllowed", "AccessDenied", "NoSuchKey"}
_NOT_TOLD |= {"501", "405", "404", "403"}
_ARCHIVES = {"GLACIER", "DEEP_ARCHIVE"}

Rule = Mapping[str, Any]


class NotTold(NamedTuple):
    """The server does not say, or not to us."""

    why: str


class Transition(NamedTuple):
    """What a rule does to an object without changing its bytes."""

    storage_class: str
    when: str

    @property
    def archives(self) -> bool:
        """Whether the object can be neither read nor copied until a person restores it."""
        return self.storage_class in _ARCHIVES


class Found(NamedTuple):
    """What the bucket says of itself."""

    versioning: str | NotTold
    """``Enabled``, ``Suspended`` or empty: never on."""
    lock: Mapping[str, Any] | NotTold | None
    """The Object Lock configuration."""
    lifecycle: Mapping[str, Any] | NotTold
    """The answer to GetBucketLifecycleConfiguration."""

    @property
    def rules(self) -> list[Rule]:
        return [] if isinstance(self.lifecycle, NotTold) else list(self.lifecycle.get("Rules", []))


class Setup:
    """Asks and changes the configuration of the bucket. Parameters: settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client = client.Connection(settings, None, client.ATTEMPTS_MAX).client
        prefix = settings.bucket.prefix
        self._prefix = f"{prefix}/" if prefix else ""

    def look(self) -> Found:
        """Raises BucketError when the bucket cannot be used at all."""
        self._call("list_objects_v2", MaxKeys=1)
        versioning = self._ask("get_bucket_versioning")
        lock = self._ask("get_object_lock_configuration")
        lifecycle = self._ask("get_bucket_lifecycle_configuration", is_none={"Rules": []})
        if not isinstance(lifecycle, NotTold) and "Rules" not in lifecycle:
            # Some servers answer whatever is asked of a bucket with the list of its objects.
            lifecycle = NotTold("an answer without rules")
        return Found(
            versioning if isinstance(versioning, NotTold) else versioning.get("Status", ""),
            lock if isinstance(lock, NotTold) else lock.get("ObjectLockConfiguration"),
            lifecycle,
        )

    def aborts(self, rule: Rule) -> bool:
        """Whether a rule ends unfinished uploads of all of our keys."""
        return "AbortIncompleteMultipartUpload" in rule and self._covers_all(rule)

    def expires(self, rule: Rule) -> bool:
        """Whether a rule deletes objects of ours that no client deleted."""
        return self._touches(rule) and bool(rule.get("Expiration", {}).keys() & {"Days", "Date"})

    def transitions(self, rule: Rule) -> list[Transition]:
        """Where a rule moves current objects of ours."""
        found = rule.get("Transitions", []) if self._touches(rule) else []
        return [
            Transition(
                str(one.get("StorageClass", "another class")),
                f"after {one['Days']} days" if "Days" in one else f"on {one.get('Date')}",
            )
            for one in found
        ]

    def apply(self, found: Found) -> None:
        """Put the rule beside all others. Raises BucketError; StoreRefused also when the bucket
        does not tell its rules, or does not have all of them afterwards."""
        name = self._settings.bucket.name
        if isinstance(found.lifecycle, NotTold):
            # A request replaces all rules: those that we do not know would be lost.
            raise StoreRefused(
                f"bucket {name} does not tell its lifecycle rules ({found.lifecycle.why}), and "
                "adding one would replace them: grant these credentials "
                "s3:GetLifecycleConfiguration, or add by hand a rule that aborts incomplete "
                f"multipart uploads after {ABORT_DAYS} days"
            )
        others = [rule for rule in found.rules if not self._is_ours(rule)]
        # S3 takes no rule with Filter beside one with the older Prefix.
        is_old = any("Prefix" in rule for rule in others)
        ours = {
            "ID": rule_id(self._prefix),
            "Status": "Enabled",
            **({"Prefix": self._prefix} if is_old else {"Filter": {"Prefix": self._prefix}}),
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": ABORT_DAYS},
        }
        size = found.lifecycle.get("TransitionDefaultMinimumObjectSize")
        kept = {"TransitionDefaultMinimumObjectSize": size} if size else {}
        rules = [*others, ours]
        self._call(
            "put_bucket_lifecycle_configuration", LifecycleConfiguration={"Rules": rules}, **kept
        )
        after = self.look().rules
        if not any(map(self.aborts, after)) or _ids(after) != _ids(rules):
            raise StoreRefused(
                f"bucket {name} took the rule and does not have it, or lacks another: look at its "
                "lifecycle rules"
            )

    def _is_ours(self, rule: Rule) -> bool:
        """Whether an earlier call made a rule. Older releases had one ID for every prefix."""
        id_ = rule.get("ID")
        return id_ == rule_id(self._prefix) or (id_ == RULE_ID and _prefix_of(rule) == self._prefix)

    def _touches(self, rule: Rule) -> bool:
        theirs = _prefix_of(rule)
        touches = self._prefix.startswith(theirs) or theirs.startswith(self._prefix)
        return rule.get("Status") == "Enabled" and touches

    def _covers_all(self, rule: Rule) -> bool:
        has_other_conditions = rule.get("Filter", {}).keys() - {"Prefix"}
        enabled = rule.get("Status") == "Enabled"
        return enabled and not has_other_conditions and self._prefix.startswith(_prefix_of(rule))

    def _ask(
        self, operation: str, is_none: Mapping[str, Any] = MappingProxyType({})
    ) -> Mapping[str, Any] | NotTold:
        """Parameters: is_none, what is returned when the server says that there is none."""
        try:
            return self._call(operation)
        except (StoreRefused, ObjectRefused) as exc:
            cause = exc.__cause__
            code = client.code_of(cause) if isinstance(cause, ClientError) else ""
            if code in _NONE:
                return is_none
            if code in _NOT_TOLD:
                return NotTold(code)
            raise

    def _call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        try:
            method = getattr(self._client, operation)
            answer: dict[str, Any] = method(Bucket=self._settings.bucket.name, **arguments)
            return answer
        except (ClientError, BotoCoreError, ResponseParserError) as exc:
            typed: BucketError = client.typed(self._settings, operation, None, exc)
            raise typed from exc


def rule_id(prefix: str) -> str:
    """The ID of our rule. A bucket has one rule of an ID, and may be of several gateways.

    Parameters: prefix, of the keys, with its slash; empty for the whole bucket.
    """
    digest = hashlib.sha256(prefix.encode()).hexdigest()
    return f"{RULE_ID}-{digest[:12]}" if prefix else RULE_ID


def _prefix_of(rule: Rule) -> str:
    filter_ = rule.get("Filter", {})
    prefix: str = filter_.get("Prefix") or filter_.get("And", {}).get("Prefix") or ""
    return prefix or str(rule.get("Prefix") or "")


def _ids(rules: Sequence[Rule]) -> list[str]:
    return sorted(str(rule.get("ID")) for rule in rules)
