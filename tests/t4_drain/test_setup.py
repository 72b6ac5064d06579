"""The findings, the output and the rules of `spillway bucket setup`; and a bucket that locks."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gateway.objectstore.setup import RULE_ID, rule_id
from tests.support.clisite import spillway
from tests.support.drainsite import MIB, PREFIX, Site
from tests.support.s3proxy import Act
from tests.support.t4.ceph import ON_CEPH

OURS = rule_id(f"{PREFIX}/")
LOCK: Any = {
    "ObjectLockEnabled": "Enabled",
    "Rule": {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}},
}
OTHERS: list[Any] = [
    {
        "ID": "to-the-cold",
        "Status": "Enabled",
        "Filter": {"Prefix": "archive/"},
        "Transitions": [{"Days": 30, "StorageClass": "GLACIER"}],
    },
    {"ID": "logs", "Status": "Enabled", "Filter": {"Prefix": "logs/"}, "Expiration": {"Days": 9}},
]


def setup(site: Site, *args: str) -> tuple[int, dict[str, Any]]:
    result = spillway("bucket", "setup", "--json", *args, "--config", site.settings.source)
    facts: dict[str, Any] = json.loads(result.stdout)
    return result.returncode, facts


def rules(site: Site) -> list[Any]:
    return site.client.get_bucket_lifecycle_configuration(Bucket=site.bucket)["Rules"]


def put(site: Site, *wanted: Any) -> None:
    site.client.put_bucket_lifecycle_configuration(
        Bucket=site.bucket, LifecycleConfiguration={"Rules": wanted}
    )


def test_a_plain_bucket(moto_site: Site) -> None:
    code, facts = setup(moto_site)
    assert code == 1
    assert facts["versioning"] == "off: a deletion takes the bytes for good"
    assert facts["object_lock"] == "off"
    assert "spillway bucket setup --apply adds one" in facts["unfinished_uploads"]
    text = spillway("bucket", "setup", "--config", moto_site.settings.source).stdout
    assert "unfinished uploads: no rule ends them" in text
    assert not [r for r in moto_site.proxy.operations() if r.method != "GET"]


@pytest.mark.parametrize("style", ["Filter", "Prefix", "none"])
def test_apply_keeps_the_other_rules(moto_site: Site, style: str) -> None:
    others = [dict(rule) for rule in OTHERS] if style != "none" else []
    if style == "Prefix":
        for rule in others:
            rule["Prefix"] = rule.pop("Filter")["Prefix"]
    if others:
        put(moto_site, *others)
    before = rules(moto_site) if others else []
    code, facts = setup(moto_site, "--apply")
    assert (code, facts["expiring_rules"]) == (0, [])
    assert facts["unfinished_uploads"] == f"ended by the rule {OURS} (just added)"
    after = rules(moto_site)
    assert [rule for rule in after if rule["ID"] != OURS] == before
    (ours,) = [rule for rule in after if rule["ID"] == OURS]
    assert ours["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}
    assert (ours.get("Prefix") or ours["Filter"]["Prefix"]) == f"{PREFIX}/"
    moto_site.proxy.forget()
    assert setup(moto_site, "--apply")[0] == 0
    assert not [r for r in moto_site.proxy.operations() if r.method != "GET"]


def test_gateways_that_share_a_bucket_keep_their_rules(moto_site: Site) -> None:
    site = moto_site
    assert setup(site, "--apply")[0] == 0
    site.values["bucket"]["prefix"] = "other"
    site.configure()
    assert setup(site, "--apply")[0] == 0
    assert {rule["ID"] for rule in rules(site)} == {OURS, rule_id("other/")}


def test_the_rule_of_an_older_release_is_replaced(moto_site: Site) -> None:
    abort = {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 3}}
    place = {"Filter": {"Prefix": f"{PREFIX}/"}}
    put(moto_site, {"ID": RULE_ID, "Status": "Disabled", **place, **abort})
    assert setup(moto_site, "--apply")[0] == 0
    assert [rule["ID"] for rule in rules(moto_site)] == [OURS]


@pytest.mark.parametrize(
    ("change", "is_enough"),
    [
        ({"Filter": {"Prefix": ""}}, True),
        ({"Filter": {"Prefix": "team/"}}, True),
        ({"Filter": {"Prefix": "other/"}}, False),
        pytest.param(
            {"Filter": {"Tag": {"Key": "a", "Value": "b"}}},
            False,
            marks=pytest.mark.skipif(ON_CEPH, reason="it refuses such a rule, as S3 does"),
        ),
        ({"Filter": {"Prefix": ""}, "Status": "Disabled"}, False),
    ],
)
def test_a_rule_of_somebody_else_may_do(
    moto_site: Site, change: dict[str, Any], is_enough: bool
) -> None:
    abort = {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 3}}
    put(moto_site, {"ID": "theirs", "Status": "Enabled", **abort, **change})
    assert setup(moto_site)[0] == int(not is_enough)


@pytest.mark.parametrize(("prefix", "ours"), [("", True), (f"{PREFIX}/a/", True), ("x/", False)])
def test_a_rule_that_deletes_our_objects_is_shown(moto_site: Site, prefix: str, ours: bool) -> None:
    rule = {"ID": "r", "Status": "Enabled", "Filter": {"Prefix": prefix}, "Expiration": {"Days": 9}}
    put(moto_site, rule)
    code, facts = setup(moto_site, "--apply")
    assert (code, facts["expiring_rules"]) == ((1, ["r"]) if ours else (0, []))


def test_a_server_without_such_settings(rclone_site: Site) -> None:
    code, facts = setup(rclone_site)
    assert code == 1
    assert "does not say" in facts["object_lock"] or facts["object_lock"] == "off"


def test_a_bucket_that_cannot_be_used(moto_site: Site) -> None:
    moto_site.values["bucket"]["name"] = "nowhere"
    moto_site.configure()
    result = spillway("bucket", "setup", "--config", moto_site.settings.source)
    assert result.returncode == 2
    assert "no bucket nowhere" in result.stderr


@pytest.fixture
def locked_site(moto_site: Site) -> Site:
    site = moto_site
    site.bucket += "-locked"
    site.client.create_bucket(Bucket=site.bucket, ObjectLockEnabledForBucket=True)
    site.client.put_object_lock_configuration(Bucket=site.bucket, ObjectLockConfiguration=LOCK)
    site.values["bucket"]["name"] = site.bucket
    site.configure()
    return site


def test_object_lock_is_told(locked_site: Site) -> None:
    _, facts = setup(locked_site)
    assert facts["object_lock"].startswith("on, COMPLIANCE for 1 days: every version stays")
    assert facts["versioning"].startswith("on: a deletion or a new version keeps the old bytes")


def of_files(versions: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys of versions, without the gateway's own."""
    keys = sorted(version["Key"].removeprefix(f"{PREFIX}/") for version in versions)
    return [key for key in keys if not key.startswith(".spillway/")]


def test_a_bucket_that_locks_takes_deletions_as_markers(locked_site: Site) -> None:
    site = locked_site
    large = os.urandom(11 * MIB)
    for path, data in {"f": b"one", "g": b"g", "large": large}.items():
        site.write(path, data)
    site.drain()
    site.write("f", b"two")
    site.unlink("g")
    site.rename("large", "renamed")
    site.drain()
    assert site.left() == []
    assert site.objects() == {"f": b"two", "renamed": large}
    versions = site.client.list_object_versions(Bucket=site.bucket)
    assert of_files(versions["Versions"]) == ["f", "f", "g", "large", "renamed"]
    assert of_files(versions["DeleteMarkers"]) == ["g", "large"]


def test_deletions_that_are_denied_do_not_stop_uploads(locked_site: Site) -> None:
    site = locked_site
    gone = ["f1", "f2", "f3"]  # the refusal of a single key would only be a failed deletion
    for path in gone:
        site.write(path, b"data")
    site.drain()
    denied = site.proxy.inject(
        lambda r: r.operation == "DELETE", Act.FAIL, 1e9, 403, "AccessDenied"
    )
    for path in gone:
        site.unlink(path)
    site.write("g", b"data")
    site.drain()
    site.write("h", b"data")
    site.drain()
    assert sorted(site.objects()) == [*gone, "g", "h"]
    bucket = site.report()["bucket"]
    assert bucket["state"] == "refused"
    assert "denies delete_objects (AccessDenied)" in bucket["error"]
    denied.release()
    site.drain()
    assert sorted(site.objects()) == ["g", "h"]
    assert site.left() == []


@pytest.mark.parametrize(("http", "code"), [(403, "AccessDenied"), (501, "NotImplemented")])
def test_rules_that_are_not_told_are_not_replaced(moto_site: Site, http: int, code: str) -> None:
    put(moto_site, *OTHERS)
    before = rules(moto_site)
    moto_site.proxy.inject(
        lambda r: r.method == "GET" and "lifecycle" in r.query, Act.FAIL, 1e9, http, code
    )
    result = spillway("bucket", "setup", "--apply", "--config", moto_site.settings.source)
    assert result.returncode == 2
    (said,) = result.stderr.splitlines()
    assert code in said
    assert "s3:GetLifecycleConfiguration" in said
    assert rules(moto_site) == before
    assert not [r for r in moto_site.proxy.operations() if r.method == "PUT"]
    assert f"({code})" in setup(moto_site)[1]["unfinished_uploads"]


@pytest.mark.skipif(ON_CEPH, reason="it tells its lifecycle rules")
def test_an_answer_that_is_not_a_list_of_rules_is_no_proof_that_there_are_none(
    rclone_site: Site,
) -> None:
    """Some servers answer every GET of a bucket with its list of objects."""
    result = spillway("bucket", "setup", "--apply", "--config", rclone_site.settings.source)
    assert result.returncode == 2
    assert "does not tell its lifecycle rules" in result.stderr
    assert not [r for r in rclone_site.proxy.operations() if r.method == "PUT"]


@pytest.mark.parametrize(
    ("prefix", "storage_class", "code", "meaning"),
    [
        ("", "GLACIER", 1, "cannot be copied until a person restores them"),
        (f"{PREFIX}/a/", "DEEP_ARCHIVE", 1, "cannot be copied until a person restores them"),
        ("", "STANDARD_IA", 0, "a rename pays for retrieval"),
    ],
)
def test_a_rule_that_moves_our_objects_to_another_class_is_explained(
    moto_site: Site, prefix: str, storage_class: str, code: int, meaning: str
) -> None:
    transitions = [{"Days": 30, "StorageClass": storage_class}]
    put(
        moto_site,
        {"ID": "t", "Status": "Enabled", "Filter": {"Prefix": prefix}, "Transitions": transitions},
    )
    found, facts = setup(moto_site, "--apply")
    assert found == code
    (said,) = facts["transition_rules"]
    assert said.startswith(f"t moves objects to {storage_class} after 30 days: ")
    assert meaning in said
    assert meaning in spillway("bucket", "setup", "--config", moto_site.settings.source).stdout


def test_a_rule_that_moves_the_objects_of_others_is_not_shown(moto_site: Site) -> None:
    put(moto_site, *OTHERS)
    assert setup(moto_site, "--apply")[1]["transition_rules"] == []
