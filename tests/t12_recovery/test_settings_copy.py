"""The bucket has configuration and tokens, and nothing that is a secret."""

from __future__ import annotations

import gzip
import json
import sqlite3
import time
import tomllib
from contextlib import closing
from pathlib import Path

import pytest

from admin_api.store import AdminBase
from gateway.objectstore.objects import ListedObject
from gateway.objectstore.ownership import Ownership
from gateway.recovery import admin_copy, settings_copy
from gateway.recovery.settings_store import ListedSettings, superfluous
from tests.support.drainsite import PREFIX, Site
from tests.support.s3server import SECRET_KEY
from tests.support.t12.names import copied
from tests.support.t12.process import SECONDS
from tests.support.t12.restored import RestoredSite
from tests.support.t12.settings import copied_settings, make_token, tokens_in
from tests.support.waiting import until

NOT_COPIED = {
    "session": "a login of the pages ends with its gateway",
    "idempotency": "it belongs to requests of a day, and has their answers",
    "job": "a job of the lost gateway must not run in the restored one",
    "sample": "the figures of the dashboard change each minute, and are many",
    "known_time": "it belongs to a machine",
}
"""Why the rows of the other tables of ``admin.db`` stay here."""


def test_each_table_of_admin_db_is_copied_or_there_is_a_reason() -> None:
    copied_tables = {*admin_copy.COPIED} - {"alembic_version"}
    assert set(AdminBase.metadata.tables) == copied_tables | NOT_COPIED.keys()
    assert not copied_tables & NOT_COPIED.keys()


def test_a_document_is_put_when_something_changed_and_only_then(moto_site: Site) -> None:
    site = moto_site
    make_token(site.settings, "first")
    with copied_settings(site) as copy:
        assert copy.look() == ""
        assert copy.look() == ""
        [document] = copy.documents()
        assert tokens_in(document.admin_db) == ["first"]
        assert tomllib.loads(document.configuration)["bucket"]["name"] == site.bucket
        make_token(site.settings, "second")
        assert copy.look() == ""
        site.configure("drain", workers=7)
        assert copy.look() == ""
        documents = copy.documents()
        assert len(documents) == 3
        assert tokens_in(documents[1].admin_db) == ["first", "second"]
        assert tomllib.loads(documents[2].configuration)["drain"] == {
            **tomllib.loads(document.configuration).get("drain", {}),
            "workers": 7,
        }
    # Another process finds out what the bucket has.
    with copied_settings(site) as copy:
        assert copy.look() == ""
        assert len(copy.documents()) == 3


def test_uses_of_tokens_and_rows_of_the_audit_log_alone_are_not_put_each_minute(
    moto_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = moto_site
    make_token(site.settings)
    with copied_settings(site) as copy:
        copy.look()
        with closing(sqlite3.connect(site.settings.admin_db)) as store, store:
            store.execute("UPDATE token SET used_ns = ?", (time.time_ns(),))
            store.execute(
                "INSERT INTO audit (at_ns, who, address, request_id, method, path) "
                "VALUES (1, 'a', 'b', 'c', 'd', 'e')"
            )
        copy.look()
        assert len(copy.documents()) == 1
        monkeypatch.setattr(settings_copy, "AUDIT_SECONDS", 0.0)
        copy.look()
        assert len(copy.documents()) == 2


def test_no_secret_is_ever_in_the_bucket(each_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither credentials, nor passwords, nor tokens, nor sessions, nor what a comment says."""
    site = each_site
    secret = make_token(site.settings)
    with closing(sqlite3.connect(site.settings.admin_db)) as store, store:
        [[token]] = store.execute("SELECT id FROM token")
        store.execute("INSERT INTO session VALUES ('secret-session', ?, 1, 2)", (token,))
        store.execute(
            "INSERT INTO job VALUES ('i', 'k', 'secret-job', 'done', 1, 1, '', '', '', '', 1, 1, "
            "1, 0, NULL, NULL)"
        )
    source = site.settings.source
    source.write_text("# secret-comment\n" + source.read_text())
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-environment")
    with copied_settings(site) as copy, copied(site) as names:
        names.all()
        # A password in the URL of the database: nothing of the URL is copied.
        url = "postgresql://user:secret-password@127.0.0.1:1/names"
        monkeypatch.setenv("SPILLWAY_NAMESPACE_URL", url)
        assert copy.look() == ""
        found = []
        for listed in names._store.listing(f"{PREFIX}/.spillway/"):
            body = names.names._objects.read(listed)
            found.append(gzip.decompress(body) if listed.key.endswith(".gz") else body)
        [document] = copy.documents()
        found += [document.admin_db or b"", document.configuration.encode()]
    assert any(b"$argon2id$" in body for body in found), "the hashes of tokens are looked at"
    for wanted in (SECRET_KEY, secret, secret[-20:], "secret-", "postgresql://"):
        assert not [body for body in found if wanted.encode() in body], wanted


def test_what_cannot_be_read_stays_as_it_was_copied(moto_site: Site) -> None:
    site = moto_site
    make_token(site.settings, "kept")
    path = site.settings.admin_db
    with copied_settings(site) as copy:
        assert copy.look() == ""
        good = path.read_bytes()
        for damage, told in (
            (b"no database" * 1000, "cannot be copied"),
            (None, "is missing"),
        ):
            path.unlink()
            if damage is not None:
                path.write_bytes(damage)
            assert told in copy.look()
            assert len(copy.documents()) == 1
        # What else changed is copied, with the tokens that it had.
        site.configure("drain", workers=3)
        assert "is missing" in copy.look()
        assert tokens_in(copy.documents()[-1].admin_db) == ["kept"]
        # A new database that has no tokens yet, also for a process that has just started.
        make_token(site.settings, "gone")
        with closing(sqlite3.connect(path)) as store, store:
            store.execute("DELETE FROM token")
        assert "has no tokens" in copy.look()
        with copied_settings(site) as again:
            assert "has no tokens" in again.look()
        assert all(tokens_in(one.admin_db) for one in copy.documents())
        path.write_bytes(good)
        assert copy.look() == ""


def test_a_database_that_is_written_is_copied_as_it_was(moto_site: Site) -> None:
    site = moto_site
    make_token(site.settings, "kept")
    with (
        copied_settings(site) as copy,
        closing(sqlite3.connect(site.settings.admin_db, isolation_level=None)) as writer,
    ):
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM token")
        assert copy.look() == ""
        assert tokens_in(copy.documents()[-1].admin_db) == ["kept"]
        writer.execute("ROLLBACK")


def test_a_wrong_configuration_is_told_and_the_tokens_are_copied(moto_site: Site) -> None:
    site = moto_site
    with copied_settings(site) as copy:
        assert copy.look() == ""
        good = copy.documents()[-1].configuration
        text = site.settings.source.read_text()
        site.settings.source.write_text("[bucket]\nname = 'b'\n[drain]\nworkers = 0\n")
        make_token(site.settings, "new")
        assert "drain.workers" in copy.look()
        document = copy.documents()[-1]
        assert (document.configuration, tokens_in(document.admin_db)) == (good, ["new"])
        site.settings.source.write_text(text)
        assert copy.look() == ""


def test_another_owner_of_the_bucket_stops_it(moto_site: Site, tmp_path: Path) -> None:
    site = moto_site
    with copied_settings(site) as copy, copied(site) as names:
        names.all()
        copy.look()
        RestoredSite(site, tmp_path / "new").restore()
        # What it knew of the bucket is a minute old.
        copy.s3.permit = Ownership(site.settings, copy.database).require
        make_token(site.settings)
        assert "belongs to another copy of this gateway" in copy.look()
        assert len(copy.documents()) == 1


def test_the_copy_is_small_whatever_the_audit_log_has(moto_site: Site) -> None:
    site = moto_site
    make_token(site.settings)
    with closing(sqlite3.connect(site.settings.admin_db)) as store, store:
        row = (1, "person", "192.0.2.1", "r", "PUT", "/api/v1/policies/x", "x" * 4000)
        store.executemany(
            "INSERT INTO audit (at_ns, who, address, request_id, method, path, after) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (row for _ in range(2 * admin_copy.AUDIT_ROWS)),
        )
    copy = admin_copy.read(site.settings.admin_db)
    assert copy is not None
    assert site.settings.admin_db.stat().st_size > 10 * admin_copy.AUDIT_BYTES
    assert len(copy.body) < 2 * admin_copy.AUDIT_BYTES
    with closing(sqlite3.connect(":memory:")) as kept:
        kept.deserialize(copy.body)
        assert kept.execute("SELECT max(id) FROM audit").fetchone() == (2 * admin_copy.AUDIT_ROWS,)


def test_old_documents_go_but_those_that_were_valid_then() -> None:
    there = [ListedSettings(n, n, ListedObject(f"{n}", 1, "", n)) for n in range(1, 5)]
    assert superfluous(there, 3) == there[:1]
    assert superfluous(there, 100) == there[:3]
    assert superfluous(there, 0) == []
    # The newest one stays, whatever the clocks said.
    turned = [there[0], ListedSettings(9, 9, ListedObject("9", 1, "", 0))]
    assert superfluous(turned, 100) == there[:1]


def test_the_process_copies_them_and_tells_what_is_wrong(rclone_site: Site) -> None:
    site = rclone_site
    make_token(site.settings)
    report = site.settings.run_dir / "recovery.json"

    def told() -> dict[str, object]:
        found: dict[str, dict[str, object]] = json.loads(report.read_text())
        return found["settings"]

    with site.process("recovery"):
        until(lambda: report.exists() and told()["copied_ns"], "the settings", SECONDS)
        assert told()["error"] == ""
    site.settings.admin_db.replace(site.settings.data_dir / "aside.db")
    report.unlink()
    with site.process("recovery"):
        until(lambda: report.exists() and told()["error"], "the error", SECONDS)
    with copied_settings(site) as copy:
        assert len(copy.documents()) == 1
