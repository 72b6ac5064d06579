"""Kerberos KDC (Debian's krb5-kdc) with a realm of its own, on loopback."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Self

from tests.support.ports import free_port
from tests.support.s3server import die_with_parent
from tests.support.tools import tool
from tests.support.waiting import until

REALM = "SPILLWAY.TEST"
_KDC_CONF = """\
[kdcdefaults]
    kdc_listen = 127.0.0.1:{port}
    kdc_tcp_listen = 127.0.0.1:{port}
[realms]
    {realm} = {{
        database_name = {directory}/principal
        key_stash_file = {directory}/stash
        acl_file = {directory}/acl
    }}
"""
_KRB5_CONF = """\
[libdefaults]
    default_realm = {realm}
    dns_lookup_kdc = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
[realms]
    {realm} = {{
        kdc = {address}:{port}
    }}
[domain_realm]
    .{domain} = {realm}
"""


class Kdc:
    """A KDC; a context manager that is entered when it answers.

    Args:
        directory: its own.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.port = free_port()
        self.config = directory / "krb5.conf"
        """The configuration for programs of this machine."""
        self._process: subprocess.Popen[bytes] | None = None
        profile = directory / "kdc.conf"
        profile.write_text(_KDC_CONF.format(port=self.port, realm=REALM, directory=directory))
        self.config.write_text(self.config_from("127.0.0.1"))
        self._environ = {
            **os.environ,
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(profile),
        }

    def config_from(self, address: str) -> str:
        """Return a krb5.conf.

        Args:
            address: address at which a machine reaches the KDC.
        """
        return _KRB5_CONF.format(realm=REALM, address=address, port=self.port, domain=REALM.lower())

    def keytab(self, *principals: str) -> Path:
        """Make principals, and a keytab with their keys. Returns its path."""
        path = self.directory / f"{principals[0].replace('/', '-')}.keytab"
        for principal in principals:
            self._admin("addprinc", "-randkey", principal)
        self._admin("ktadd", "-q", "-k", str(path), *principals)
        return path

    def __enter__(self) -> Self:
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        self._process = subprocess.Popen(
            [tool("krb5kdc"), "-n", "-r", REALM],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,
        )
        keytab = self.keytab("probe")
        cache = ("-c", f"FILE:{self.directory}/probe")
        until(
            lambda: self._try("kinit", *cache, "-k", "-t", str(keytab), "probe"), "the KDC's answer"
        )
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def _admin(self, *words: str) -> None:
        self._run("kadmin.local", "-r", REALM, *words)

    def _run(self, name: str, *arguments: str) -> None:
        done = self._call(name, *arguments)
        if done.returncode != 0:
            raise AssertionError(f"{name} {' '.join(arguments)}: {done.stdout}{done.stderr}")

    def _try(self, name: str, *arguments: str) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the KDC ended: {self._process.communicate()[0].decode()}")
        return self._call(name, *arguments).returncode == 0

    def _call(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [tool(name), *arguments],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
