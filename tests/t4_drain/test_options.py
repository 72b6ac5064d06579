"""The options of the bucket, with real servers and real requests."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gateway.common.errors import StoreRefused
from gateway.objectstore.s3 import S3Store
from tests.support.certificates import certify
from tests.support.drainsite import MIB, Site
from tests.support.s3server import MotoServer, RcloneServer, credentials
from tests.support.t4.ceph import ON_CEPH
from tests.support.t4.options import METADATA, settings_of, use

ROLE = {
    "AccessKeyId": "ASIAOFTHEROLE",
    "SecretAccessKey": "secret of the role",
    "Token": "token of the role",
    "Expiration": "2999-01-01T00:00:00Z",
}


UNTRUSTED = r"is not trusted: unable to get local issuer certificate: set bucket\.ca_bundle"


def test_a_ca_of_ones_own(tmp_path: Path) -> None:
    certify(tmp_path)
    (tmp_path / "s3" / "b").mkdir(parents=True)
    options = ("--cert", str(tmp_path / "server.pem"), "--key", str(tmp_path / "server.key"))
    with RcloneServer(tmp_path / "s3", options) as server:
        endpoint = server.url.replace("http:", "https:")
        settings = settings_of(tmp_path, endpoint_url=endpoint, ca_bundle=str(tmp_path / "ca.pem"))
        use(S3Store(settings))
        (tmp_path / "other").mkdir()
        stranger = S3Store(settings_of(tmp_path / "other", endpoint_url=endpoint))
        with pytest.raises(StoreRefused, match=UNTRUSTED):
            stranger.check()
        with pytest.raises(StoreRefused, match=UNTRUSTED):
            stranger.put("x", b"data", {})


def test_the_ca_bundle_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds for each kind of request, and the configuration overrides it."""
    certify(tmp_path)
    (tmp_path / "s3" / "b").mkdir(parents=True)
    options = ("--cert", str(tmp_path / "server.pem"), "--key", str(tmp_path / "server.key"))
    with RcloneServer(tmp_path / "s3", options) as server:
        settings = settings_of(tmp_path, endpoint_url=server.url.replace("http:", "https:"))
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "ca.pem"))
        use(S3Store(settings))
        (tmp_path / "none.pem").write_text("nothing")
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "none.pem"))
        with pytest.raises(StoreRefused, match=r"AWS_CA_BUNDLE .*none\.pem cannot be used"):
            S3Store(settings).check()
        own = replace(settings.bucket, ca_bundle=str(tmp_path / "ca.pem"))
        use(S3Store(replace(settings, bucket=own)))


def test_a_ca_bundle_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    settings = settings_of(
        tmp_path, endpoint_url="https://127.0.0.1:9", ca_bundle=str(tmp_path / "ca.pem")
    )
    with pytest.raises(StoreRefused, match="must be a file of certificates in PEM"):
        S3Store(settings).check()


@pytest.mark.parametrize("path_style", [True, False])
def test_addressing(
    moto: MotoServer, moto_site: Site, monkeypatch: pytest.MonkeyPatch, path_style: bool
) -> None:
    """The bucket is in the path, or in the name of the host."""
    honest = socket.getaddrinfo
    hosts: set[str] = set()

    def resolve(host: str, *args: Any, **kwargs: Any) -> Any:
        hosts.add(host)
        return honest("127.0.0.1" if host.endswith(".amazonaws.com") else host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    name = "s3.us-east-1.amazonaws.com"
    proxy = moto_site.proxy
    moto_site.values["bucket"]["endpoint_url"] = proxy.url.replace("127.0.0.1", name)
    moto_site.values["bucket"]["path_style"] = path_style
    moto_site.configure()
    use(S3Store(moto_site.settings))
    wanted = name if path_style else f"{moto_site.bucket}.{name}"
    assert hosts - {"127.0.0.1"} == {wanted}
    assert {r.headers["host"].rpartition(":")[0] for r in proxy.operations()} == {wanted}
    assert moto_site.objects().keys() == {"!a", "!b"}


def test_a_session_token_goes_with_every_request(rclone_site: Site) -> None:
    site = rclone_site
    site.set_credentials(credentials() + "aws_session_token = the+token==\n")
    use(S3Store(site.settings))
    requests = site.proxy.operations()
    assert {r.headers.get("x-amz-security-token") for r in requests} == {"the+token=="}
    assert not [r for r in requests if "x-amz-request-payer" in r.headers]


class _Metadata(BaseHTTPRequestHandler):
    """The endpoint from which containers and instances get their role's credentials."""

    def do_PUT(self) -> None:
        self._answer("imds token")

    def do_GET(self) -> None:
        if self.path.endswith("/security-credentials/"):
            return self._answer("the-role")
        return self._answer(json.dumps({"Code": "Success", **ROLE}))

    def _answer(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_args: object) -> None:
        """Print nothing."""


@contextmanager
def metadata_endpoint() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Metadata) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.skipif(ON_CEPH, reason="it knows only its own users; moto knows every role")
@pytest.mark.parametrize(
    ("variable", "path"),
    [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "/credentials"),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", ""),
    ],
)
def test_the_role_of_the_container_or_instance(
    moto_site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, path: str
) -> None:
    """Without a credentials file, the drain and its senders use the role's credentials."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    moto_site.settings.credentials_file.unlink()
    moto_site.configure(processes=1)
    moto_site.write("small", b"data")
    moto_site.write("large", bytes(11 * MIB))
    with metadata_endpoint() as url:
        monkeypatch.setenv(variable, url + path)
        moto_site.drain()
    assert moto_site.left() == []
    for request in moto_site.proxy.operations():
        assert f"Credential={ROLE['AccessKeyId']}/" in request.headers["authorization"]
        assert request.headers["x-amz-security-token"] == ROLE["Token"]


def test_no_credentials_at_all(
    moto_site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    moto_site.settings.credentials_file.unlink()
    with pytest.raises(StoreRefused, match="no credentials for bucket"):
        S3Store(moto_site.settings).put("a", b"data", {})
    assert moto_site.proxy.operations() == []


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"storage_class": "STANDARD_IA"}, {"StorageClass": "STANDARD_IA"}),
        pytest.param(
            {"encryption": "AES256"},
            {"ServerSideEncryption": "AES256"},
            marks=pytest.mark.skipif(ON_CEPH, reason="Ceph 16 has no SSE-S3"),
        ),
        pytest.param(
            {"encryption": "aws:kms", "kms_key": "alias/mine"},
            {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "alias/mine"},
            marks=pytest.mark.skipif(ON_CEPH, reason="Ceph 16 copies no encrypted objects"),
        ),
        ({}, {"StorageClass": None, "SSEKMSKeyId": None}),
    ],
)
def test_how_the_store_keeps_objects(
    moto_site: Site, options: dict[str, str], found: dict[str, str | None]
) -> None:
    """The options hold for objects sent whole, objects sent in parts, and copies."""
    site = moto_site
    site.values["bucket"].update(options)
    site.configure()
    store = S3Store(site.settings, copy_max_bytes=6 * MIB)
    use(store)
    data = os.urandom(7 * MIB)
    copied = store.put("large", data, METADATA).head
    store.copy("large", "copy", copied, METADATA)
    assert site.proxy.operations("PART COPY")
    store.copy("a", "c", store.put("a", b"data", METADATA).head, METADATA)
    for key in ("a", "b", "c", "large", "copy"):
        head: Any = site.client.head_object(Bucket=site.bucket, Key=key)
        assert {name: head.get(name) for name in found} == found, key
