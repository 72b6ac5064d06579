"""The configuration: every key, its checks, the environment, and the file that `init` writes."""

from __future__ import annotations

import json
import socket
import tomllib
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.common.errors import ConfigError, UserError
from gateway.config import checks, loader
from gateway.config.settings import SECTIONS, Settings

MINIMAL = {"bucket": {"name": "b"}}
UNQUOTED = {"endpoint_url", "url"}
"""Keys whose values may contain a password."""


def read(raw: dict[str, Any], **environ: str) -> Settings:
    return loader.from_mapping(raw, environ)


def with_key(section: str, key: str, value: Any) -> dict[str, Any]:
    raw: dict[str, dict[str, Any]] = {"bucket": {"name": "b"}}
    raw.setdefault(section, {})[key] = value
    return raw


def test_only_the_bucket_is_required() -> None:
    settings = read(MINIMAL)
    assert settings.bucket.name == "b"
    assert settings.nfs.port == 2049
    assert settings.source == Path("<memory>")
    with pytest.raises(ConfigError, match=r"bucket\.name: .*SPILLWAY_BUCKET_NAME"):
        read({})


def test_places_below_the_data_directory() -> None:
    settings = read(with_key("gateway", "data_dir", "/nvme"))
    assert settings.database_url == "sqlite:////nvme/namespace.db"
    assert settings.credentials_file == Path("/nvme/credentials")
    assert settings.files_dir == Path("/nvme/files")
    other = read(with_key("bucket", "credentials_file", "/etc/keys"))
    assert other.credentials_file == Path("/etc/keys")


@pytest.mark.parametrize(
    ("section", "key", "value", "remedy"),
    [
        ("drain", "schedule", ["8-20 1MB"], 'must look like "08:00-20:00 200MiB"'),
        (
            "drain",
            "schedule",
            ["08:00-08:00 1MiB"],
            "is empty: for the whole day write 00:00-24:00",
        ),
        ("drain", "schedule", "08:00-20:00 1MiB", "must be a list of strings"),
        ("drain", "bytes_per_second", -1, "must be at least 0"),
        ("drain", "requests_per_second", -0.5, "must be at least 0"),
        ("drain", "lease_seconds", 0, "between 1 and 3600"),
        ("drain", "max_open_age_seconds", -1, "at least 0"),
        ("drain", "checksum_at_seal", "yes", "must be true or false"),
        ("nfs", "port", 0, "between 1 and 65535"),
        ("nfs", "port", 65536, "between 1 and 65535"),
        ("nfs", "port", "2049", "a whole number"),
        ("nfs", "port", True, "a whole number"),
        ("nfs", "port", 2049.0, "a whole number"),
        ("nfs", "bind", "", "must not be empty"),
        ("nfs", "export", "/", "must look like /checkpoints"),
        ("nfs", "export", "relative", "must look like /checkpoints"),
        ("nfs", "export", "/a/", "must look like /checkpoints"),
        ("nfs", "export", '/a";}', "must look like /checkpoints"),
        ("nfs", "max_io_bytes", 4095, "between 4096"),
        ("nfs", "clients", [], "must have an entry"),
        ("nfs", "clients", "10.0.0.0/8 rw", "must be a list of strings"),
        ("nfs", "clients", ["10.0.0.0/8"], 'must look like "10.0.0.0/8 rw"'),
        ("nfs", "clients", ["10.0.0.0/8 rwx"], 'must look like "10.0.0.0/8 rw"'),
        ("nfs", "clients", ["10.0.0.0/8 rw root_squash x"], 'must look like "10.0.0.0/8 rw"'),
        ("nfs", "clients", ["10.0.0.0/8 rw squash"], "third word must be no_root_squash"),
        ("nfs", "clients", ["::1 rw", "10.0.0.1/8 rw"], "10.0.0.1/8 has host bits set"),
        ("nfs", "clients", ["trainer.example rw"], "does not appear to be an IPv4 or IPv6"),
        ("nfs", "clients", ["10.0.0.1;} rw"], "does not appear to be an IPv4 or IPv6"),
        ("nfs", "clients", ["fe80::1%eth0 rw"], "must look like"),
        ("nfs", "clients", ["fd00::/112 rw"], "a prefix of at most 99, or is an address"),
        ("nfs", "squash", "no", "must be one of none, root, all"),
        ("nfs", "security", [], "must have one or more of sys, krb5, krb5i, krb5p, each once"),
        ("nfs", "security", ["sys", "krb6"], "each once"),
        ("nfs", "security", ["krb5", "krb5"], "each once"),
        ("cache", "evict_from", 1.1, "between 0.05 and 1"),
        ("cache", "limits", ["scratch=5GB"], 'must look like "NAME=500GiB"'),
        ("cache", "limits", ["5GiB"], 'must look like "NAME=500GiB"'),
        ("cache", "restore_tier", "Fast", "must be one of Standard, Bulk, Expedited"),
        ("nfs", "version_4_2", "yes", "must be one of auto, on, off"),
        ("nfs", "version_4_2", 1, "a string"),
        ("nfs", "squash", True, "a string"),
        ("nfs", "ganesha", "ganesha.nfsd", "an absolute path"),
        ("nfs", "plugins_dir", 3, "a path in quotes"),
        ("nfs", "lease_seconds", 181, "between 5 and 180"),
        ("gateway", "data_dir", "var/lib", "an absolute path"),
        ("bucket", "endpoint_url", "s3:9000", "http:// or https://"),
        ("bucket", "prefix", "/a", "no / at its ends"),
        ("bucket", "prefix", "a//b", "no / at its ends"),
        ("bucket", "path_style", "yes", "true or false"),
        ("bucket", "region", 1, "a string"),
        ("drain", "incomplete_patterns", "*.tmp", "a list of strings"),
        ("drain", "incomplete_patterns", [1], "a list of strings"),
        ("drain", "part_bytes", 1024, "between"),
        ("drain", "settle_seconds", float("nan"), "between 0 and 86400"),
        ("drain", "workers", 0, "between 1 and 64"),
        ("drain", "poll_seconds", True, "a number"),
    ],
)
def test_values_that_cannot_be(section: str, key: str, value: Any, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(with_key(section, key, value))
    assert caught.value.key == f"{section}.{key}"
    shown = ": " if key in UNQUOTED else " = "
    assert f"{section}.{key}{shown}" in str(caught.value)
    assert remedy in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_unknown_names_are_told_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"nfs\.prot: no such key; \[nfs\] has bind, port"):
        read(with_key("nfs", "prot", 1))
    with pytest.raises(ConfigError, match="no such section; there are gateway, nfs"):
        read(with_key("ganesha", "port", 1))
    with pytest.raises(ConfigError, match=r"must be a section: \[nfs\]"):
        read({**MINIMAL, "nfs": 3})


SECRET = "wJalrXUtn"


@pytest.mark.parametrize(
    ("raw", "part"),
    [
        ({"bucket": {"name": "b", "secret_access_key": SECRET}}, "bucket.secret_access_key: no"),
        ({"bucket": {"name": "b"}, "secret_access_key": SECRET}, "secret_access_key: no such"),
        ({"bucket": {"name": "b"}, "database": {"password": SECRET}}, "database: no such section"),
        ({"bucket": {"name": "b"}, "namespace": f"postgresql://u:{SECRET}@h/n"}, "namespace: must"),
        (with_key("namespace", "url", [f"postgresql://u:{SECRET}@h/n"]), "namespace.url: must be"),
        (with_key("bucket", "endpoint_url", f"u:{SECRET}@s3:9000"), "bucket.endpoint_url: must"),
        (with_key("bucket", "endpoint_url", f"http://u:{SECRET}@s3"), "bucket.endpoint_url: must"),
    ],
)
def test_a_value_that_may_be_a_secret_is_not_quoted(raw: dict[str, Any], part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(raw)
    assert f"configuration: {part}" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_an_url_of_the_environment_is_not_quoted() -> None:
    with pytest.raises(ConfigError, match="SPILLWAY_BUCKET_ENDPOINT_URL: must") as caught:
        read(MINIMAL, SPILLWAY_BUCKET_ENDPOINT_URL=f"u:{SECRET}@s3:9000")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("item", ["a", "=3", "a=", "a=0", "a=1001", "a=-1", "a=1.5", "a=x"])
@pytest.mark.parametrize("key", ["client_weights", "directory_weights"])
def test_weights_that_cannot_be(key: str, item: str) -> None:
    with pytest.raises(ConfigError, match=f"space.{key}.*NAME=4"):
        read(with_key("space", key, ["good=2", item]))


def test_weights() -> None:
    settings = read(with_key("space", "directory_weights", ["a=2", "b=c=1000"]))
    assert checks.weights(settings.space.directory_weights) == {"a": 2, "b=c": 1000}


def test_a_whole_number_is_a_number() -> None:
    assert read(with_key("drain", "settle_seconds", 2)).drain.settle_seconds == 2.0


def test_the_environment_wins() -> None:
    settings = read(
        with_key("nfs", "port", 1111),
        SPILLWAY_NFS_PORT="2222",
        SPILLWAY_BUCKET_NAME="other",
        SPILLWAY_BUCKET_PATH_STYLE="false",
        SPILLWAY_DRAIN_INCOMPLETE_PATTERNS='["*.part"]',
        SPILLWAY_DRAIN_SETTLE_SECONDS="0.5",
        SPILLWAY_GATEWAY_DATA_DIR="/nvme",
        SPILLWAY_CONFIG="/is/no/key",
    )
    assert settings.nfs.port == 2222
    assert settings.bucket.name == "other"
    assert settings.bucket.path_style is False
    assert settings.drain.incomplete_patterns == ("*.part",)
    assert settings.drain.settle_seconds == 0.5
    assert settings.data_dir == Path("/nvme")


@pytest.mark.parametrize(
    ("given", "meant"), [(True, "on"), (False, "off"), ("auto", "auto"), ("off", "off")]
)
def test_a_switch_of_an_earlier_version_is_read_as_a_word(given: bool | str, meant: str) -> None:
    text = str(given).lower()
    assert read(with_key("nfs", "version_4_2", given)).nfs.version_4_2 == meant
    assert read(MINIMAL, SPILLWAY_NFS_VERSION_4_2=text).nfs.version_4_2 == meant


@pytest.mark.parametrize(
    ("variable", "text", "remedy"),
    [
        ("SPILLWAY_NFS_PORT", "many", "write it as in the TOML file"),
        ("SPILLWAY_NFS_PORT", '"1"', "a whole number"),
        ("SPILLWAY_NFS_PORT", "0", "between 1 and 65535"),
        ("SPILLWAY_GATEWAY_DATA_DIR", "here", "an absolute path"),
    ],
)
def test_errors_name_the_variable(variable: str, text: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=variable) as caught:
        read(MINIMAL, **{variable: text})
    assert remedy in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "spillway.toml"
    with pytest.raises(UserError, match=f"no configuration at {path}: run: spillway init"):
        loader.load(path, {})
    for content in (b"[nfs", b"\xff\xfe", b"[nfs]\n[nfs]\n"):
        path.write_bytes(content)
        with pytest.raises(UserError, match="not valid TOML"):
            loader.load(path, {})
    path.unlink()
    path.mkdir()
    with pytest.raises(UserError, match="cannot read"):
        loader.load(path, {})


def test_the_rendered_file_is_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "spillway.toml"
    path.write_text(loader.render({"bucket": {"name": "b"}}))
    assert loader.load(path, {}) == loader.from_mapping(MINIMAL, {}, path)


def test_every_key_is_in_the_rendered_file_with_its_default() -> None:
    """If the # before a default is removed, nothing changes."""
    lines = loader.render({"bucket": {"name": "b"}}).splitlines()
    keys = {spec.name for cls in SECTIONS.values() for spec in fields(cls)}
    uncommented = [
        line.removeprefix("# ") if line.removeprefix("# ").split(" = ")[0] in keys else line
        for line in lines
    ]
    raw = tomllib.loads("\n".join(uncommented))
    assert {(s, k) for s, values in raw.items() for k in values} == {
        (name, spec.name) for name, cls in SECTIONS.items() for spec in fields(cls)
    }
    assert read(raw) == read(MINIMAL)


def test_every_key_is_documented() -> None:
    for cls in SECTIONS.values():
        for spec in fields(cls):
            assert spec.metadata["doc"].strip().endswith(".")


SAMPLES: dict[type, st.SearchStrategy[Any]] = {
    int: st.integers(5, 60),
    float: st.floats(1, 60),
    bool: st.booleans(),
    str: st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=20),
    tuple: st.lists(st.text(st.characters(exclude_categories=["C"]), max_size=9)).map(tuple),
}
SHAPED = {
    "export",
    "endpoint_url",
    "prefix",
    "ca_bundle",
    "storage_class",
    "encryption",
    "checksum",
    "kms_key",
    "part_bytes",
    "max_io_bytes",
    "max_connections",
    "threads",
    "url",
    "schedule",
    "slow_from",
    "client_weights",
    "directory_weights",
    "clients",
    "log_format",
    "squash",
    "version_4_2",
    "names_log",
    "names_log_bytes",
    "security",
    "busy_share",
    "evict_from",
    "evict_to",
    "limits",
    "restore_tier",
    "tls",
    "rule",
    "approval_share",
    "min_replacement_share",
    "audit_export",
    "receiver",
}


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("ca_bundle", "ca.pem", "must be an absolute path"),
        ("storage_class", "cold storage", "must look like STANDARD_IA"),
        ("encryption", "rot13", "must be AES256, aws:kms"),
        ("prefix", "a/../b", "no . or .. between slashes"),
        ("prefix", "a\nb", "no control characters"),
        ("prefix", "p" * 513, "at most 512 bytes"),
        ("kms_key", "alias/mine", "needs bucket.encryption = aws:kms"),
    ],
)
def test_options_of_the_bucket_are_checked(key: str, value: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=remedy):
        loader.from_mapping({"bucket": {"name": "b", key: value}}, {})


def test_an_address_cannot_carry_the_buckets_name() -> None:
    bucket = {"name": "b", "path_style": False, "endpoint_url": "https://[::1]:9000"}
    with pytest.raises(ConfigError, match=r"path_style .*needs a host name in bucket.endpoint_url"):
        loader.from_mapping({"bucket": bucket}, {})
    assert not loader.from_mapping(
        {"bucket": {**bucket, "endpoint_url": "https://s3.example.com"}}, {}
    ).bucket.path_style


@given(st.data())
def test_what_is_rendered_is_read_back(data: st.DataObject) -> None:
    values: dict[str, dict[str, Any]] = {}
    for name, cls in SECTIONS.items():
        for spec in fields(cls):
            default = "" if spec.default is MISSING else spec.default
            sample = SAMPLES.get(type(default))
            if sample is not None and spec.name not in SHAPED and data.draw(st.booleans()):
                values.setdefault(name, {})[spec.name] = data.draw(sample)
    values.setdefault("bucket", {}).setdefault("name", "b")
    raw = tomllib.loads(loader.render(values))
    assert {s: v for s, v in raw.items() if v} == json.loads(json.dumps(values))
    settings = read(raw)
    for section, keys in values.items():
        for key, value in keys.items():
            assert getattr(getattr(settings, section), key) == value


EARLIER = [
    ("drain", "hold_patterns", "incomplete_patterns", ["*.part"], ("*.part",)),
    ("retention", "ask_share", "approval_share", 0.25, 0.25),
    ("retention", "least_share", "min_replacement_share", 0.75, 0.75),
]


@pytest.mark.parametrize(("section", "old", "new", "given", "read_as"), EARLIER)
def test_the_name_of_the_release_before_is_read_and_told(
    section: str,
    old: str,
    new: str,
    given: Any,
    read_as: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An upgrade must not lose a setting that a person made, nor end in an error."""
    settings = read(with_key(section, old, given))
    assert getattr(getattr(settings, section), new) == read_as
    assert [record.message for record in caplog.records] == [
        f"{section}.{old} is {section}.{new} now: rename it in the file"
    ]
    caplog.clear()
    variable = f"SPILLWAY_{section}_{old}".upper()
    settings = read(MINIMAL, **{variable: json.dumps(given)})
    assert getattr(getattr(settings, section), new) == read_as
    [told] = [record.message for record in caplog.records]
    assert told.startswith(
        f"{variable} is SPILLWAY_{section}_{new}".upper().replace(" IS ", " is ")
    )
    both = with_key(section, old, given)
    both[section][new] = given
    with pytest.raises(ConfigError, match=f"is set as {old} too"):
        read(both)


def test_a_gateway_has_the_name_of_its_host_unless_it_has_one() -> None:
    assert loader.from_mapping({"bucket": {"name": "b"}}, {}).name == socket.gethostname()
    named = {"bucket": {"name": "b"}, "gateway": {"name": "Lab 1"}}
    assert loader.from_mapping(named, {}).name == "Lab 1"
    for wrong in ("a\nb", "x" * 65):
        with pytest.raises(ConfigError, match="at most 64"):
            loader.from_mapping({**named, "gateway": {"name": wrong}}, {})
