"""Copy of the settings: keeps the configuration and the tokens in the bucket, beside the names.

Once a minute both are looked at, and a document is put if one of them changed. Rows of the audit
log alone are put once an hour. What cannot be read now is as the last document has it: nothing that
is missing or damaged ever replaces a good copy.

Keys that may hold a password are not in it, and neither is text of the person's file: a comment may
hold anything.
"""

from __future__ import annotations

import logging
from dataclasses import fields
from importlib.metadata import version
from typing import Any, NamedTuple

from gateway.common import clock
from gateway.common.errors import StoreError, UserError
from gateway.config import loader
from gateway.config.settings import SECTIONS, Settings
from gateway.db import statements as sql
from gateway.db.engine import Database
from gateway.recovery import admin_copy
from gateway.recovery.admin_copy import AdminCopy, AdminUnreadable
from gateway.recovery.segments import BadSegment
from gateway.recovery.settings_store import SettingsDocument, SettingsStore, superfluous

log = logging.getLogger("recovery")

LOOK_SECONDS = 60.0
RETRY_SECONDS = 10.0
AUDIT_SECONDS = 3600.0


def configuration_of(settings: Settings) -> str:
    """Return the file of a configuration, with the keys that differ from their defaults.

    Args:
        settings: the whole configuration. Keys that may hold a password are left out.
    """
    values: dict[str, dict[str, Any]] = {}
    for section, cls in SECTIONS.items():
        for spec in fields(cls):
            value = getattr(getattr(settings, section), spec.name)
            if value != spec.default and not spec.metadata["secret"]:
                values.setdefault(section, {})[spec.name] = value
    return loader.render(values)


class SettingsProgress(NamedTuple):
    """How far the copy is, for the report."""

    copied_ns: int
    """The time of the newest document. 0: there is none yet."""
    error: str
    """Why something is not copied now. Empty: nothing is wrong."""


class SettingsCopy:
    """The copy of the settings of one gateway. Not safe to use from several threads.

    Args:
        settings: of the gateway.
        database: of the gateway.
        store: the documents.
    """

    def __init__(self, settings: Settings, database: Database, store: SettingsStore) -> None:
        self._settings = settings
        self._database = database
        self._store = store
        self._text: str | None = None
        """The file that was read last."""
        self._namespace = ""
        self._number: int | None = None
        """The highest one of the documents. None: they were not looked at yet."""
        self._last: SettingsDocument | None = None
        """The newest document that can be understood."""
        self._admin: AdminCopy | None = None
        """The one of it."""
        self._due_at = 0.0
        self._error = ""

    def progress(self) -> SettingsProgress:
        """Return how far it is."""
        return SettingsProgress(0 if self._last is None else self._last.time_ns, self._error)

    def step(self) -> float:
        """Copy what changed, if it is time to look.

        Returns:
            After how many seconds it is time again.

        Raises:
            NamespaceError: the database cannot be used now.
            OSError: the disk does not take it.
        """
        now = clock.monotonic_seconds()
        if now < self._due_at:
            return self._due_at - now
        try:
            problems = self._look()
        except StoreError as exc:
            problems = [str(exc)]
        error = "; ".join(problems)
        if error and error != self._error:
            log.warning("the settings are not copied as they are: %s", error)
        self._error = error
        self._due_at = clock.monotonic_seconds() + (RETRY_SECONDS if error else LOOK_SECONDS)
        return self._due_at - clock.monotonic_seconds()

    def _look(self) -> list[str]:
        """Put a document if something changed. Returns what cannot be read. Raises StoreError."""
        if self._number is None:
            self._remember()
        problems: list[str] = []
        configuration = self._configuration(problems)
        admin = self._admin_now(problems)
        if configuration is None or not self._differs(configuration, admin):
            return problems
        document = SettingsDocument(
            version("spillway"),
            clock.now_ns(),
            self._namespace,
            configuration,
            None if admin is None else admin.body,
        )
        # A try that fails counts too: its answer may only be late.
        self._number = (self._number or 0) + 1
        self._store.put(document, self._number)
        self._last, self._admin = document, admin
        self._tidy()
        return problems

    def _remember(self) -> None:
        """Find out what the newest document of this namespace has. Raises StoreError."""
        with self._database.reading() as session:
            identity = session.one(sql.IDENTITY)
        assert identity is not None, "the volume row is missing"
        self._namespace = bytes(identity[0]).hex()
        there = self._store.documents()
        self._last = self._admin = None
        for found in reversed(there):
            try:
                last = self._store.read(found)
                if last.namespace != self._namespace:
                    # The prefix was taken from another gateway, whose tokens are not ours.
                    continue
                self._admin = None if last.admin_db is None else admin_copy.opened(last.admin_db)
            except (BadSegment, AdminUnreadable) as exc:
                log.warning("%s: another document is made", exc)
                continue
            self._last = last
            break
        self._number = there[-1].number if there else 0

    def _configuration(self, problems: list[str]) -> str | None:
        try:
            return configuration_of(self._file())
        except UserError as exc:
            problems.append(str(exc))
        return None if self._last is None else self._last.configuration

    def _file(self) -> Settings:
        """Return the settings of the file. Raises UserError."""
        source = self._settings.source
        try:
            text = source.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            raise UserError(f"{source} cannot be read: {exc}") from None
        # To read it again would log again which names of keys are old.
        if text != self._text:
            self._settings = loader.load(source)
            self._text = text
        return self._settings

    def _admin_now(self, problems: list[str]) -> AdminCopy | None:
        path, last = self._settings.admin_db, self._admin
        try:
            admin = admin_copy.read(path)
        except AdminUnreadable as exc:
            problems.append(str(exc))
            return last
        if last is None:
            return admin
        if admin is None:
            problems.append(f"{path} is missing: the copy keeps the tokens that it had")
            return last
        if last.tokens and not admin.tokens:
            problems.append(
                f"{path} has no tokens: the copy keeps those that it had until a new one is made "
                "(spillway token create)"
            )
            return last
        return admin

    def _differs(self, configuration: str, admin: AdminCopy | None) -> bool:
        """Return whether a new document is needed."""
        last = self._last
        if last is None or configuration != last.configuration:
            return True
        if admin is None or self._admin is None:
            return admin is not self._admin
        if admin.tokens != self._admin.tokens:
            return True
        # A clock that was set back must not stop it.
        age_ns = abs(clock.now_ns() - last.time_ns)
        return admin.audited != self._admin.audited and age_ns >= AUDIT_SECONDS * clock.NS

    def _tidy(self) -> None:
        """Delete what no restore within ``keep_days`` needs. Raises StoreError."""
        kept_ns = clock.now_ns() - self._settings.recovery.keep_days * 86_400 * clock.NS
        if old := superfluous(self._store.documents(), kept_ns):
            self._store.delete(old)
