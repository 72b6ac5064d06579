"""``spillway restore`` brings configuration and tokens back, but not over what a person said."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gateway.common import clock
from gateway.common.errors import ConfigError
from gateway.config import loader
from gateway.config.settings import SECTIONS
from gateway.recovery import settings_restore
from gateway.recovery.settings_restore import merged
from tests.support.clisite import assert_refused, spillway
from tests.support.drainsite import PREFIX, Site
from tests.support.s3server import ACCESS_KEY, SECRET_KEY
from tests.support.t12.names import copied
from tests.support.t12.settings import copied_settings, make_token, tokens_in
from tests.support.waiting import until

KEYS = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
GIVEN = {"bucket": {"name": "here"}}


def test_the_keys_of_machine_and_place_exist() -> None:
    for where in settings_restore.OF_MACHINE | settings_restore.OF_PLACE:
        section, _dot, key = where.partition(".")
        assert key in SECTIONS[section].__dataclass_fields__, where


def text_of(**sections: dict[str, Any]) -> str:
    return loader.render(sections)


def test_a_person_goes_first_and_the_machine_keeps_its_own() -> None:
    copy = text_of(
        gateway={"data_dir": "/former"},
        bucket={"name": "former", "storage_class": "STANDARD_IA"},
        nfs={"bind": "192.0.2.1", "clients": ["192.0.2.0/24 rw"], "security": ["krb5p"]},
        admin={"bind": "192.0.2.1", "tls": "files", "audit_days": 9},
        drain={"workers": 7, "processes": 3},
        checkpoints={"rule": [{"name": "x", "path": "{run}/{step}", "files": 8}]},
    )
    given: dict[str, dict[str, Any]] = {"bucket": {"name": "here"}, "drain": {"workers": 2}}
    values, taken, left = merged(copy, given, {"SPILLWAY_DRAIN_PROCESSES": "1"})
    assert taken == [
        *("admin.audit_days", "bucket.storage_class", "checkpoints.rule"),
        *("nfs.clients", "nfs.security"),
    ]
    assert left.keys() == {
        *("gateway.data_dir", "bucket.name", "nfs.bind", "admin.bind", "admin.tls"),
        *("drain.workers", "drain.processes"),
    }
    assert values["bucket"] == {"name": "here", "storage_class": "STANDARD_IA"}
    assert values["drain"] == {"workers": 2}
    assert tomllib.loads(loader.render(values))["checkpoints"]["rule"][0]["files"] == 8


def test_keys_of_another_release_are_left_and_named() -> None:
    copy = (
        "[drain]\nworkers = 0\npoll_seconds = 2.0\nof_tomorrow = 1\n[of_tomorrow]\na = 1\n"
        "[retention]\nask_share = 0.25\n[bucket]\nkms_key = 'k'\n"
    )
    values, taken, left = merged(copy, GIVEN, {})
    assert taken == ["drain.poll_seconds", "retention.approval_share"]
    assert left.keys() == {
        *("drain.workers", "drain.of_tomorrow", "of_tomorrow.a", "bucket.kms_key"),
    }
    assert loader.from_mapping(values, {}).retention.approval_share == 0.25
    with pytest.raises(ConfigError, match=r"drain\.workers"):
        merged(copy, {**GIVEN, "drain": {"workers": 0}}, {})


def arguments(site: Site, directory: Path, *more: str | Path) -> list[str | Path]:
    bucket = site.settings.bucket
    return [
        *("restore", "--config", directory / "etc" / "spillway.toml"),
        *("--data-dir", directory / "data", "--bucket", bucket.name, "--json"),
        *("--endpoint-url", bucket.endpoint_url, "--prefix", PREFIX, "--is-gone", *more),
    ]


@pytest.fixture
def lost(moto_site: Site) -> Site:
    """A gateway that is gone, with a token and a setting in the bucket."""
    site = moto_site
    site.write("a", b"1")
    site.drain()
    make_token(site.settings, "person")
    site.configure("drain", workers=7, settle_seconds=0.0)
    with copied(site) as names, copied_settings(site) as copy:
        names.all()
        assert copy.look() == ""
    return site


def test_an_empty_machine_gets_settings_and_tokens(lost: Site, tmp_path: Path) -> None:
    done = spillway(*arguments(lost, tmp_path), env=KEYS)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)["settings"]
    assert "drain.workers" in facts["taken"]
    assert facts["tokens"] == "restored"
    settings = loader.load(tmp_path / "etc" / "spillway.toml", {})
    assert settings.drain.workers == 7
    assert settings.data_dir == tmp_path / "data"
    assert settings.bucket.name == lost.bucket
    assert settings.admin_db.stat().st_mode & 0o777 == 0o600
    listed = spillway("token", "list", "--json", "--config", tmp_path / "etc" / "spillway.toml")
    assert [token["name"] for token in json.loads(listed.stdout)] == ["person"]


def test_a_file_that_is_there_goes_first_and_stays_beside(lost: Site, tmp_path: Path) -> None:
    config = tmp_path / "etc" / "spillway.toml"
    config.parent.mkdir()
    bucket = lost.settings.bucket
    text = "# mine\n" + loader.render(
        {
            "gateway": {"data_dir": str(tmp_path / "data")},
            "bucket": {
                **{"name": bucket.name, "endpoint_url": bucket.endpoint_url, "prefix": PREFIX}
            },
            "drain": {"workers": 2},
        }
    )
    config.write_text(text)
    config.chmod(0o640)
    store = tmp_path / "data" / "admin.db"
    store.parent.mkdir(mode=0o700)
    store.with_name("admin.db-wal").write_bytes(b"of another database")
    done = spillway("restore", "--config", config, "--is-gone", env=KEYS)
    assert done.returncode == 0, done.stderr
    assert "not drain.workers: it is given otherwise" in done.stdout
    settings = loader.load(config, {})
    assert (settings.drain.workers, settings.drain.settle_seconds) == (2, 0.0)
    assert config.with_name("spillway.toml.before-restore").read_text() == text
    assert config.stat().st_mode & 0o777 == 0o640
    # What is left of a database is never mixed with another one.
    assert not store.exists()
    assert f"{store} is there, and kept" in done.stdout


def test_a_namespace_that_is_there_is_left_as_it_is(lost: Site, tmp_path: Path) -> None:
    assert spillway(*arguments(lost, tmp_path), env=KEYS).returncode == 0
    config = tmp_path / "etc" / "spillway.toml"
    config.write_text(config.read_text().replace("workers = 7", "# workers = 7"))
    before = config.read_text()
    assert_refused(spillway(*arguments(lost, tmp_path), env=KEYS), "has a namespace")
    assert config.read_text() == before


def test_of_a_time_are_the_settings_but_not_the_tokens(lost: Site, tmp_path: Path) -> None:
    """A token that was revoked since must not open the door again."""
    site = lost
    with copied_settings(site) as copy:
        then_ns = clock.now_ns() + clock.NS
        # The key of a document has whole seconds.
        until(lambda: clock.now_ns() > then_ns + clock.NS, "a later second")
        site.configure("drain", workers=5)
        make_token(site.settings, "later")
        copy.look()
        assert len(copy.store.documents()) == 2
    done = spillway(*arguments(site, tmp_path, "--at", clock.iso(then_ns)), env=KEYS)
    assert done.returncode == 0, done.stderr
    settings = loader.load(tmp_path / "etc" / "spillway.toml", {})
    assert settings.drain.workers == 7
    assert tokens_in(settings.admin_db.read_bytes()) == ["person", "later"]


def test_a_damaged_document_is_told_and_the_one_before_is_used(lost: Site, tmp_path: Path) -> None:
    site = lost
    with copied_settings(site) as copy:
        make_token(site.settings, "later")
        copy.look()
        [_first, last] = copy.store.documents()
        site.client.put_object(Bucket=site.bucket, Key=last.listed.key, Body=b"cut off")
    done = spillway(*arguments(site, tmp_path), env=KEYS)
    assert done.returncode == 1, done.stderr
    facts = json.loads(done.stdout)
    assert "cannot be understood" in facts["problems"][0]
    settings = loader.load(tmp_path / "etc" / "spillway.toml", {})
    assert tokens_in(settings.admin_db.read_bytes()) == ["person"]
