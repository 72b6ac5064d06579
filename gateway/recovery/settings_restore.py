"""Restore of the settings: which keys of a copy a gateway takes, and its tokens.

A person's word goes first: an option, the environment, the file that is there. What belongs to a
machine, or says where the bucket is, is never taken. Everything else is as it was.

With a time, the configuration is of then. The tokens are the newest ones in any case: one that was
revoked since must not open the door again.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from gateway.common.errors import ConfigError
from gateway.config import loader
from gateway.config.settings import SECTIONS, Settings
from gateway.objectstore.s3 import S3Store
from gateway.recovery import admin_copy
from gateway.recovery.admin_copy import AdminUnreadable
from gateway.recovery.copy_objects import BucketObjects, CopyObjects, DirectoryObjects
from gateway.recovery.names_store import NamesStore
from gateway.recovery.restore import require_none
from gateway.recovery.segments import BadSegment
from gateway.recovery.settings_store import ListedSettings, SettingsDocument, SettingsStore
from gateway.recovery.source import choose

OF_MACHINE = frozenset(
    {
        *("gateway.data_dir", "namespace.url"),
        *("nfs.bind", "nfs.keytab", "nfs.idmap_conf", "nfs.ganesha", "nfs.plugins_dir"),
        *("admin.bind", "admin.tls", "admin.certificate", "admin.private_key"),
    }
)
"""Keys of which a new machine has its own: paths, programs, addresses and what belongs to them."""
OF_PLACE = frozenset(
    {
        *("bucket.name", "bucket.endpoint_url", "bucket.region", "bucket.prefix"),
        *("bucket.path_style", "bucket.credentials_file", "bucket.ca_bundle"),
    }
)
"""Keys with which the bucket was reached just now: the copy may be of another bucket."""

Values = Mapping[str, Mapping[str, Any]]


class MergedValues(NamedTuple):
    """A configuration that is completed from a copy."""

    values: dict[str, dict[str, Any]]
    taken: list[str]
    """The keys that are as the copy has them."""
    left: dict[str, str]
    """Other keys of the copy, and why they are not."""


def merged(configuration: str, given: Values, environ: Mapping[str, str]) -> MergedValues:
    """Complete a configuration from a copy. Pure.

    Args:
        configuration: of the copy, as TOML.
        given: what a person gave, in options or in a file.
        environ: the environment, which goes first.

    Returns:
        What is in force then.

    Raises:
        BadSegment: the copy cannot be understood.
        ConfigError: what a person gave is wrong.
    """
    try:
        copied = tomllib.loads(configuration)
    except tomllib.TOMLDecodeError as exc:
        raise BadSegment(f"the configuration of the copy cannot be understood: {exc}") from None
    values = {section: {**keys} for section, keys in given.items()}
    taken: dict[str, tuple[str, str]] = {}
    left: dict[str, str] = {}
    for section, keys in copied.items():
        names = _todays_names(section)
        for key, value in keys.items():
            name = names.get(key, key)
            where = f"{section}.{name}"
            has = values.get(section, {})
            if where in OF_MACHINE | OF_PLACE:
                if has.get(name) != value:
                    left[where] = "it belongs to the machine, or to the bucket that you gave"
            elif name in has or key in has or loader.variable_of(section, name) in environ:
                if has.get(name, has.get(key)) != value:
                    left[where] = "it is given otherwise"
            else:
                values.setdefault(section, {})[name] = value
                taken[where] = (section, name)
    while True:
        try:
            loader.from_mapping(values, environ)
        except ConfigError as exc:
            # Another release has other keys, and other checks.
            wrong = [where for where in taken if where in (exc.key, f"{exc.key}.{taken[where][1]}")]
            if not wrong:
                raise
            for where in wrong:
                section, name = taken.pop(where)
                del values[section][name]
                if not values[section]:
                    del values[section]
                left[where] = exc.remedy
            continue
        return MergedValues(values, sorted(taken), left)


def _todays_names(section: str) -> dict[str, str]:
    """Return the names that keys of the release before have today."""
    cls = SECTIONS.get(section)
    specs = () if cls is None else fields(cls)
    return {
        spec.metadata["earlier"]: spec.name
        for spec in specs
        if spec.metadata["earlier"] is not None
    }


@dataclass
class SettingsRestore:
    """The settings that one restore takes.

    Args:
        directory: a backup, or None for the bucket.
        at_ns: the time of which the configuration is (default: the newest).
    """

    directory: Path | None
    at_ns: int | None
    of_time: SettingsDocument | None = None
    """The document whose configuration is used. None: there is none."""
    taken: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    tokens: str = "the copy has none"
    """What became of the tokens, for people."""
    problems: list[str] = field(default_factory=list)
    """What was wrong with the copy, for people."""
    _newest: SettingsDocument | None = None

    def objects(self, settings: Settings) -> CopyObjects:
        """Return the copy."""
        if self.directory is not None:
            return DirectoryObjects(self.directory)
        return BucketObjects(settings, S3Store(settings))

    def complete(self, settings: Settings, given: Values) -> Values:
        """Complete a configuration from the copy.

        Args:
            settings: with which the bucket is reached.
            given: what a person gave.

        Returns:
            What is in force then.

        Raises:
            UserError: there is a namespace already, or no copy of one.
            StoreError: the bucket does not give the copy.
        """
        require_none(settings)
        objects = self.objects(settings)
        namespace = choose(NamesStore(objects), self.at_ns).base.namespace
        store = SettingsStore(objects)
        there = store.documents()
        self._newest = self.of_time = self._read(store, there, namespace)
        if self.at_ns is not None:
            then = [found for found in there if found.time_ns <= self.at_ns]
            self.of_time = (
                self._read(store, then, namespace)
                # What was before the first document is not known: the first one is the nearest.
                or self._read(store, there[:1], namespace)
            )
        if self.of_time is None:
            return given
        try:
            values, self.taken, self.left = merged(self.of_time.configuration, given, os.environ)
        except BadSegment as exc:
            self.problems.append(str(exc))
            return given
        return values

    def refused(self, reason: str) -> None:
        """Note that nothing of the configuration was taken."""
        self.left |= dict.fromkeys(self.taken, reason)
        self.taken = []

    def put_tokens(self, settings: Settings) -> None:
        """Put the tokens in place, if the gateway has none. Raises OSError."""
        body = None if self._newest is None else self._newest.admin_db
        if body is None:
            return
        try:
            is_put = admin_copy.put_in_place(body, settings.admin_db)
        except AdminUnreadable as exc:
            self.tokens = "not restored"
            self.problems.append(str(exc))
            return
        self.tokens = "restored" if is_put else f"{settings.admin_db} is there, and kept"

    def _read(
        self, store: SettingsStore, there: list[ListedSettings], namespace: str
    ) -> SettingsDocument | None:
        """Return the newest document of a namespace that can be understood. Raises StoreError."""
        for found in reversed(there):
            try:
                document = store.read(found)
            except BadSegment as exc:
                if str(exc) not in self.problems:
                    self.problems.append(str(exc))
                continue
            # The prefix may have been another gateway's, whose tokens are not this one's.
            if document.namespace == namespace:
                return document
        return None
