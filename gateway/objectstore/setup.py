"""Setup of the bucket: reads versions, Object Lock and lifecycle, and adds the gateway's rule.

S3 operations: GetBucketVersioning, GetObjectLockConfiguration, GetBucketLifecycleConfiguration,
PutBucketLifecycleConfiguration.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from gateway.common.errors import ObjectRefused, StoreError, StoreRefused
from gateway.common.types import ARCHIVES
from gateway.config.settings import Settings
from gateway.objectstore import client

RULE_ID = "spillway-abort-incomplete-uploads"
ABORT_DAYS = 7
"""The drain resumes an interrupted upload, so this time must be longer than any outage."""
_NONE = {"NoSuchLifecycleConfiguration", "ObjectLockConfigurationNotFoundError"}
_UNREADABLE = {"NotImplemented", "MethodNotAllowed", "AccessDenied", "NoSuchKey"}
_UNREADABLE |= {"501", "405", "404", "403"}

Rule = Mapping[str, Any]


class Unreadable(NamedTuple):
    """A setting that the server does not tell, or not with these credentials."""

    why: str


class LifecycleTransition(NamedTuple):
    """A rule's move of an object to another storage class. The bytes stay the same."""

    storage_class: str
    when: str

    @property
    def archives(self) -> bool:
        """Whether the object can neither be read nor copied until a person restores it."""
        return self.storage_class in ARCHIVES


class BucketConfiguration(NamedTuple):
    """The settings that the bucket tells."""

    versioning: str | Unreadable
    """``Enabled``, ``Suspended``, or empty if it was never on."""
    lock: Mapping[str, Any] | Unreadable | None
    """The Object Lock configuration."""
    lifecycle: Mapping[str, Any] | Unreadable
    """The answer to GetBucketLifecycleConfiguration."""

    @property
    def rules(self) -> list[Rule]:
        return (
            [] if isinstance(self.lifecycle, Unreadable) else list(self.lifecycle.get("Rules", []))
        )


class Setup:
    """Reads and changes the configuration of the bucket."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client = client.BucketConnection(settings, None, client.ATTEMPTS_MAX).client
        prefix = settings.bucket.prefix
        self._prefix = f"{prefix}/" if prefix else ""

    def look(self) -> BucketConfiguration:
        """Return the bucket's settings. Raises StoreError when the bucket cannot be used."""
        self._call("list_objects_v2", MaxKeys=1)
        versioning = self._ask("get_bucket_versioning")
        lock = self._ask("get_object_lock_configuration")
        lifecycle = self._ask("get_bucket_lifecycle_configuration", is_none={"Rules": []})
        if not isinstance(lifecycle, Unreadable) and "Rules" not in lifecycle:
            # Some servers answer any question about a bucket with the list of its objects.
            lifecycle = Unreadable("an answer without rules")
        return BucketConfiguration(
            versioning if isinstance(versioning, Unreadable) else versioning.get("Status", ""),
            lock if isinstance(lock, Unreadable) else lock.get("ObjectLockConfiguration"),
            lifecycle,
        )

    def aborts(self, rule: Rule) -> bool:
        """Return whether a rule ends unfinished uploads of all keys below the prefix."""
        return "AbortIncompleteMultipartUpload" in rule and self._covers_all(rule)

    def expires(self, rule: Rule) -> bool:
        """Return whether a rule deletes objects below the prefix that no client deleted."""
        return self._touches(rule) and bool(rule.get("Expiration", {}).keys() & {"Days", "Date"})

    def transitions(self, rule: Rule) -> list[LifecycleTransition]:
        """Return the moves by a rule of current objects below the prefix."""
        transitions = rule.get("Transitions", []) if self._touches(rule) else []
        return [
            LifecycleTransition(
                str(transition.get("StorageClass", "another class")),
                f"after {transition['Days']} days"
                if "Days" in transition
                else f"on {transition.get('Date')}",
            )
            for transition in transitions
        ]

    def apply(self, found: BucketConfiguration) -> None:
        """Add the gateway's rule beside all others.

        Raises StoreError; StoreRefused also when the bucket does not tell its rules, or does not
        have all of them afterwards.
        """
        name = self._settings.bucket.name
        if isinstance(found.lifecycle, Unreadable):
            # A request replaces all rules: unknown rules would be lost.
            raise StoreRefused(
                f"bucket {name} does not tell its lifecycle rules ({found.lifecycle.why}), and "
                "adding one would replace them: grant these credentials "
                "s3:GetLifecycleConfiguration, or add by hand a rule that aborts incomplete "
                f"multipart uploads after {ABORT_DAYS} days"
            )
        others = [rule for rule in found.rules if not self._is_ours(rule)]
        # S3 refuses a rule with Filter beside a rule with the older Prefix.
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
        """Return whether an earlier call made a rule. Older releases had one ID for any prefix."""
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
    ) -> Mapping[str, Any] | Unreadable:
        """Ask for one setting.

        Args:
            is_none: the result if the server has none.
        """
        try:
            return self._call(operation)
        except (StoreRefused, ObjectRefused) as exc:
            cause = exc.__cause__
            code = client.code_of(cause) if isinstance(cause, ClientError) else ""
            if code in _NONE:
                return is_none
            if code in _UNREADABLE:
                return Unreadable(code)
            raise

    def _call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        try:
            method = getattr(self._client, operation)
            answer: dict[str, Any] = method(Bucket=self._settings.bucket.name, **arguments)
            return answer
        except (ClientError, BotoCoreError, ResponseParserError) as exc:
            typed: StoreError = client.typed(self._settings, operation, None, exc)
            raise typed from exc


def rule_id(prefix: str) -> str:
    """Return the ID of a gateway's rule: a bucket has one rule for each ID, and several gateways.

    Args:
        prefix: of the keys, with its slash; empty for the whole bucket.
    """
    digest = hashlib.sha256(prefix.encode()).hexdigest()
    return f"{RULE_ID}-{digest[:12]}" if prefix else RULE_ID


def _prefix_of(rule: Rule) -> str:
    filter_ = rule.get("Filter", {})
    prefix: str = filter_.get("Prefix") or filter_.get("And", {}).get("Prefix") or ""
    return prefix or str(rule.get("Prefix") or "")


def _ids(rules: Sequence[Rule]) -> list[str]:
    return sorted(str(rule.get("ID")) for rule in rules)
