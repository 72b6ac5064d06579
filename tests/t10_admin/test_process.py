"""The process of the admin API: TLS, what it refuses to listen on, its place beside NFS."""

from __future__ import annotations

import signal
import socket
import ssl
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509

from admin_api.access.principal import Role
from admin_api.access.tokens import create
from admin_api.listener import listen, require_safe
from admin_api.middleware import HEADERS
from admin_api.requests import open_gateway
from admin_api.tls import AUTHORITY, Certificate, paths
from gateway.cli.main import main
from gateway.common import clock
from gateway.common.errors import UserError
from gateway.config.settings import Settings
from tests.support.certificates import certify
from tests.support.clisite import PROGRAM, Running, Site, environ, spillway
from tests.support.gateway import running
from tests.support.ports import free_port
from tests.support.volumes import make_settings
from tests.support.waiting import until

DAY_NS = 86_400 * clock.NS


def with_admin(directory: Path, values: Mapping[str, Any]) -> Settings:
    (directory / "data").mkdir(exist_ok=True)
    return make_settings(directory / "data", {"admin": values})


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text.strip()}"}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A gateway that was set up, whose admin API has a port of its own."""
    made = Site(tmp_path, free_port())
    data = str(tmp_path / "data")
    assert main(["init", "--config", str(made.config), "--data-dir", data, "--bucket", "b"]) == 0
    made.edit("admin", "port", str(free_port()))
    return made


def test_it_serves_by_itself_over_tls_and_takes_tokens_at_once(site: Site) -> None:
    port = site.settings.admin.port
    site.edit("admin", "tls", '"self-signed"')
    made = spillway("token", "create", "--config", site.config, "--role", "viewer", "--name", "ci")
    assert (made.returncode, len(made.stdout.splitlines())) == (0, 1)
    argv = [str(PROGRAM), "admin", "--config", str(site.config)]
    with Running(argv, environ()) as admin:
        admin.expect(f"listening on https://127.0.0.1:{port}/")
        trusted = ssl.create_default_context(cafile=str(paths(site.settings)[0]))
        key = paths(site.settings)[1]
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        for host in ("127.0.0.1", "localhost"):
            url = f"https://{host}:{port}/api/v1/session"
            answer = httpx.get(url, headers=bearer(made.stdout), verify=trusted)
            assert (answer.status_code, answer.json()["name"]) == (200, "ci")
            assert {name: answer.headers[name] for name in HEADERS} == HEADERS
            assert "strict-transport-security" not in answer.headers
            assert "server" not in answer.headers
        with pytest.raises(httpx.ConnectError):
            httpx.get(url)
        opened = httpx.post(
            url.replace("session", "login"), json={"token": made.stdout.strip()}, verify=trusted
        )
        assert "; Secure" in opened.headers["set-cookie"]
        # A token that a command revokes ends at once in the process that remembers it.
        token_id = made.stdout.split("_")[1]
        assert token_id in spillway("token", "list", "--config", site.config).stdout
        ended = spillway("token", "revoke", "--config", site.config, token_id)
        assert ended.stdout == f"{token_id}: revoked\n"
        answer = httpx.get(url, headers=bearer(made.stdout), verify=trusted)
        assert answer.status_code == 401
        line = admin.expect(" status=401 ")
        assert f"request={answer.headers['x-request-id']} method=GET path=/api/v1/session" in line
        admin.process.send_signal(signal.SIGTERM)
        assert admin.wait() == 0
    secret = made.stdout.strip().split("_", 2)[2]
    assert not any(secret in line for line in admin.lines)
    endless = ("--role", "viewer", "--expires", "999999999999d")
    refused = spillway("token", "create", "--config", site.config, *endless)
    assert (refused.returncode, "100 years at most" in refused.stderr) == (2, True)
    unknown = spillway("token", "revoke", "--config", site.config, "nothing")
    assert (unknown.returncode, "see spillway token list" in unknown.stderr) == (2, True)


def test_it_listens_for_other_machines_only_with_tls_and_a_valid_token(tmp_path: Path) -> None:
    plain = with_admin(tmp_path, {"bind": "0.0.0.0"})
    gateway = open_gateway(plain)
    with pytest.raises(UserError, match=r"0\.0\.0\.0.*in the clear: set admin\.tls = \"self-sig"):
        require_safe(gateway)
    secured = replace(gateway, settings=with_admin(tmp_path, {"bind": "::", "tls": "self-signed"}))
    for expires_ns in (None, clock.now_ns()):
        if expires_ns is not None:
            with gateway.store.writing() as session:
                create(session, "old", Role.ADMIN, expires_ns, "tests")
        with pytest.raises(UserError, match=r"no valid token.*spillway token create --role admin"):
            require_safe(secured)
    with gateway.store.writing() as session:
        create(session, "new", Role.VIEWER, None, "tests")
    require_safe(secured)
    with pytest.raises(UserError, match="in the clear"):
        require_safe(gateway)
    for bind in ("127.0.0.1", "127.8.9.1", "::1", "localhost"):
        require_safe(replace(gateway, settings=with_admin(tmp_path, {"bind": bind})))


def test_a_port_or_an_address_that_it_cannot_have_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UserError, match=f"{port} .* in use: stop .*admin.port"):
            listen(with_admin(tmp_path, {"port": port}))
    with listen(with_admin(tmp_path, {"port": free_port()})) as listener:
        # Without it each answer takes 40 ms more.
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    with pytest.raises(UserError, match=r"set admin\.bind to an address of this machine"):
        listen(with_admin(tmp_path, {"bind": "192.0.2.1"}))
    with pytest.raises(UserError, match=r"check admin\.bind and admin\.port"):
        listen(with_admin(tmp_path, {"bind": "no such host"}))


def test_a_made_certificate_names_the_host_and_is_renewed_before_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = with_admin(tmp_path, {"tls": "self-signed", "bind": "10.11.12.13"})

    def made() -> x509.Certificate:
        return x509.load_pem_x509_certificate(paths(settings)[0].read_bytes())

    used = Certificate(settings)
    first = made()
    names = first.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost", socket.gethostname()} <= set(names.get_values_for_type(x509.DNSName))
    addresses = {str(value) for value in names.get_values_for_type(x509.IPAddress)}
    assert {"127.0.0.1", "::1", "10.11.12.13"} <= addresses
    now_ns = clock.now_ns()
    for days, is_renewed in ((790, False), (800, True)):
        monkeypatch.setattr(clock, "now_ns", lambda days=days: now_ns + days * DAY_NS)
        used.refresh()
        assert (made() != first) is is_renewed, days
    second = made()
    # A crash between the key and the certificate leaves two that do not fit.
    certify(tmp_path)
    (tmp_path / "server.key").replace(paths(settings)[1])
    Certificate(settings)
    assert made() != second
    assert stat.S_IMODE(paths(settings)[1].stat().st_mode) == 0o600


def test_a_client_that_has_a_certificate_trusts_the_renewed_one(tmp_path: Path) -> None:
    settings = with_admin(tmp_path, {"tls": "self-signed", "bind": "10.11.12.13"})
    Certificate(settings)
    certificate, key = paths(settings)
    authority = certificate.with_name(AUTHORITY)
    copied = ssl.create_default_context(cafile=str(certificate))
    assert stat.S_IMODE(authority.stat().st_mode) == 0o600
    for gone, is_trusted in (((certificate, key), True), ((certificate, authority), False)):
        for path in gone:
            path.unlink()
        assert trusts(copied, Certificate(settings).context, "10.11.12.13") is is_trusted


def test_given_certificates_are_reloaded_and_never_overwritten(tmp_path: Path) -> None:
    given = {
        "certificate": str(tmp_path / "server.pem"),
        "private_key": str(tmp_path / "server.key"),
    }
    settings = with_admin(tmp_path, {"tls": "files", **given})
    with pytest.raises(UserError, match=r"server\.pem: No such file.*check admin\.certificate"):
        Certificate(settings)
    certify(tmp_path)
    used = Certificate(settings)
    text = paths(settings)[0].read_bytes()
    with pytest.raises(UserError, match=r'was not made by Spillway: set admin\.tls = "files"'):
        Certificate(with_admin(tmp_path, {"tls": "self-signed", **given}))
    assert paths(settings)[0].read_bytes() == text
    (tmp_path / "ca.key").replace(given["private_key"])
    with pytest.raises(UserError, match="its key, without a password"):
        used.refresh()
    certify(tmp_path)
    used.refresh()
    assert presented(used.context) == ssl.PEM_cert_to_DER_cert(
        (tmp_path / "server.pem").read_text()
    )


def trusts(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> bool:
    """Return whether a client trusts a server."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server, server_hostname=host)
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    try:
        for side in (asking, answering, asking, answering):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    except ssl.SSLCertVerificationError:
        return False
    return True


def presented(context: ssl.SSLContext) -> bytes:
    """Return the certificate that a server with a context shows."""
    lax = ssl.create_default_context()
    lax.check_hostname = False
    lax.verify_mode = ssl.CERT_NONE
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = lax.wrap_bio(to_client, to_server)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    data = client.getpeercert(binary_form=True)
    assert data is not None
    return data


def test_the_gateway_serves_while_its_port_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with running(tmp_path, {"admin": {"enabled": True, "port": port}}) as gateway:
            gateway.until_said("admin: cannot listen on port", 1)
            gateway.until_said("admin died: exit code 1; next start in", 1)
            assert gateway.said("ganesha ready") == 1
            assert gateway.spillway("mkdir", "made").returncode == 0
            other.close()
            gateway.until_said("admin: ", 1)
            gateway.until_said("listening on http://127.0.0.1", 1)
            token = gateway.spillway("token", "create", "--role", "admin").stdout
            url = f"http://127.0.0.1:{port}/api/v1/"
            with httpx.Client(base_url=url, headers=bearer(token)) as http:
                assert http.get("health/ready").json() == {"status": "ok"}
                assert http.get("session").json()["role"] == "admin"
            until(lambda: gateway.status()["processes"]["admin"]["alive"], "admin in the status")
            gateway.kill("admin")
            gateway.until_said("listening on http://127.0.0.1", 2)
            assert gateway.said("ganesha ready") == 1
