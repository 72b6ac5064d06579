"""The proxy of the environment, which the drain's requests go through as those of boto3 do."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from botocore.exceptions import ProxyConnectionError

from gateway.common.errors import StoreUnavailable
from gateway.objectstore.s3 import S3Store
from gateway.objectstore.transport import Timeouts, Transport
from tests.support.certificates import certify
from tests.support.forwardproxy import ForwardProxy
from tests.support.ports import free_port
from tests.support.s3server import RcloneServer
from tests.support.t4.options import settings_of, use

NO_BODY = {"Content-Length": "0"}


@pytest.mark.parametrize("is_tls", [False, True])
def test_the_proxy_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_tls: bool
) -> None:
    certify(tmp_path)
    (tmp_path / "s3" / "b").mkdir(parents=True)
    options = ("--cert", str(tmp_path / "server.pem"), "--key", str(tmp_path / "server.key"))
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with (
        RcloneServer(tmp_path / "s3", options if is_tls else ()) as server,
        ForwardProxy() as proxy,
    ):
        url, bucket = server.url, {}
        if is_tls:
            url, bucket = url.replace("http:", "https:"), {"ca_bundle": str(tmp_path / "ca.pem")}
        settings = settings_of(tmp_path, endpoint_url=url, **bucket)
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, proxy.url)
        use(S3Store(settings))
        password = base64.b64encode(ForwardProxy.USER.encode()).decode()
        assert proxy.asked
        assert all(line.endswith(f"Basic {password}") for line in proxy.asked)
        wanted = "CONNECT 127.0.0.1" if is_tls else f"PUT {url}/b/a HTTP"
        assert [line for line in proxy.asked if line.startswith(wanted)]
        seen = len(proxy.asked)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        use(S3Store(settings))
        assert len(proxy.asked) == seen


def test_a_proxy_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", f"127.0.0.1:{free_port()}")
    transport = Transport("http://127.0.0.1:9", "", Timeouts(connect=5.0, read=5.0))
    with pytest.raises(ProxyConnectionError):
        transport.send("PUT", "/k", NO_BODY, b"")
    store = S3Store(settings_of(tmp_path, endpoint_url="http://127.0.0.1:9"))
    with pytest.raises(StoreUnavailable, match="ProxyConnectionError"):
        store.put("a", b"", {})
