"""The settings are rendered to ganesha.conf, and no path in it can add configuration."""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import up
from gateway.common.errors import ConfigError
from gateway.config import loader
from gateway.config.settings import Settings
from gateway.nfs import export_blocks, ganesha_conf, server
from gateway.nfs.export import ExportedDirectory

MIB = 1024 * 1024


def settings(source: str = "/etc/spillway/spillway.toml", **nfs: Any) -> Settings:
    raw: dict[str, Any] = {"bucket": {"name": "b"}}
    data_dir = nfs.pop("data_dir", "/nvme")
    return loader.from_mapping(
        {**raw, "gateway": {"data_dir": data_dir}, "nfs": nfs}, {}, Path(source)
    )


def options(text: str) -> dict[tuple[str, str], str]:
    """Return the values by (block, option), as Ganesha's parser reads them, without comments.

    The blocks of clients are CLIENT 0, CLIENT 1 and so on, in the order of the text.
    """
    written_options: dict[tuple[str, str], str] = {}
    blocks: list[str] = []
    numbers = itertools.count()
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if opened := re.fullmatch(r"(\w+) \{", stripped):
            number = f" {next(numbers)}" if opened[1] == "CLIENT" else ""
            blocks.append(opened[1] + number)
        elif stripped == "}":
            blocks.pop()
        else:
            option = re.fullmatch(r"(\w+) = (.*);", stripped)
            assert option is not None, line
            where = (blocks[-1], option[1])
            assert where not in written_options, f"{where} twice"
            written_options[where] = option[2]
    assert blocks == []
    return written_options


def test_the_limits_of_the_server_are_configured() -> None:
    written_options = options(ganesha_conf.render(settings()))
    assert written_options["NFS_CORE_PARAM", "RPC_Max_Connections"] == "10000"
    assert written_options["NFS_CORE_PARAM", "RPC_Ioq_ThrdMax"] == "512"
    assert ("EXPORT", "Manage_Gids") not in written_options
    given = settings(max_connections=5000, threads=600, manage_gids=True)
    written_options = options(ganesha_conf.render(given))
    assert written_options["NFS_CORE_PARAM", "RPC_Max_Connections"] == "5000"
    assert written_options["NFS_CORE_PARAM", "RPC_Ioq_ThrdMax"] == "600"
    assert written_options["EXPORT", "Manage_Gids"] == "true"


def test_what_clients_depend_on() -> None:
    written_options = options(
        ganesha_conf.render(
            settings(port=20490, bind="10.0.0.1", export="/ckpt", lease_seconds=7, grace_seconds=9)
        )
    )
    assert written_options["NFS_CORE_PARAM", "NFS_Port"] == "20490"
    assert written_options["NFS_CORE_PARAM", "Bind_Addr"] == "10.0.0.1"
    assert written_options["NFS_CORE_PARAM", "Plugins_Dir"] == '"/usr/lib/spillway"'
    assert written_options["NFSV4", "Lease_Lifetime"] == "7"
    assert written_options["NFSV4", "Grace_Period"] == "9"
    assert written_options["NFSV4", "Graceless"] == "false"
    assert written_options["NFSV4", "RecoveryRoot"] == '"/nvme/recovery"'
    assert written_options["EXPORT", "Path"] == written_options["EXPORT", "Pseudo"] == '"/ckpt"'
    assert written_options["EXPORT", "Export_Id"] == "1", "part of every handle clients hold"
    assert written_options["FSAL", "Name"] == "PYTHON"


def test_kerberos() -> None:
    written_options = options(ganesha_conf.render(settings()))
    assert written_options["EXPORT", "SecType"] == "sys"
    assert written_options["NFS_KRB5", "Active_krb5"] == "false"
    both = ["krb5i", "krb5p"]
    given = settings(security=both, keytab="/k", idmap_conf="/i", port=20490)
    text = ganesha_conf.render(given)
    written_options = options(text)
    assert written_options["EXPORT", "SecType"] == "krb5i, krb5p"
    assert written_options["NFS_KRB5", "Active_krb5"] == "true"
    assert written_options["NFS_KRB5", "KeytabPath"] == '"/k"'
    assert written_options["NFS_KRB5", "CCacheDir"] == '"/nvme/run/krb5"'
    assert written_options["NFSV4", "IdmapConf"] == '"/i"'
    assert export_blocks.unsound(text) is None
    assert "mount -t nfs4 -o port=20490,sec=krb5i " in up.mount_command(given)
    former, other = (
        ganesha_conf.render(one).partition(export_blocks.MARK)[2] for one in (settings(), given)
    )
    assert server._needs_a_restart(former, other), "a running server has no Kerberos then"
    assert not server._needs_a_restart(former, former)


def test_what_must_stay_off() -> None:
    written_options = options(ganesha_conf.render(settings()))
    assert written_options["NFSV4", "Delegations"] == "false"
    assert (
        written_options["NFS_CORE_PARAM", "Protocols"]
        == written_options["EXPORT", "Protocols"]
        == "4"
    )
    for side_service in ("Enable_NLM", "Enable_RQUOTA", "Enable_UDP"):
        assert written_options["NFS_CORE_PARAM", side_service] == "false"
    assert written_options["NFS_KRB5", "Active_krb5"] == "false"


@pytest.mark.parametrize(
    ("said", "wanted", "serves_4_2", "is_release_6"),
    [
        ("NFS-Ganesha Release = V4.3", "auto", False, False),  # READ_PLUS answers with no data
        ("NFS-Ganesha Release = V5.9", "auto", False, False),
        ("NFS-Ganesha Release = V6.5", "auto", True, True),
        ("NFS-Ganesha Release = V10.1", "auto", True, True),
        ("NFS-Ganesha Release = V6.5", "off", False, True),
        ("NFS-Ganesha Release = V4.3", "on", True, False),
        ("Ganesha of another kind", "auto", False, False),
        (None, "auto", False, False),  # it is not installed yet
    ],
)
def test_what_depends_on_the_server(
    tmp_path: Path, said: str | None, wanted: str, serves_4_2: bool, is_release_6: bool
) -> None:
    server = tmp_path / "ganesha.nfsd"
    if said is not None:
        server.write_text(f'#!/bin/sh\n[ "$*" = -v ] && echo "{said}"\n')
        server.chmod(0o755)
    made = settings(ganesha=str(server), version_4_2=wanted)
    written_options = options(ganesha_conf.render(made))
    assert written_options["NFSV4", "Minor_Versions"] == ("0, 1, 2" if serves_4_2 else "0, 1")
    # Ganesha 4.3 does not know these options.
    assert (("NFS_CORE_PARAM", "allow_set_io_flusher_fail") in written_options) == is_release_6
    assert written_options.get(("NFSV4", "Expired_Client_Threshold")) == (
        "0" if is_release_6 else None
    )


def test_the_server_keeps_its_buffers_and_gets_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=1")
    environ = ganesha_conf.environ()
    assert "AWS_SECRET_ACCESS_KEY" not in environ and environ["PATH"]
    tunables = environ["GLIBC_TUNABLES"].split(":")
    assert "glibc.malloc.mmap_threshold=4194304" in tunables
    assert tunables[-1] == "glibc.malloc.trim_threshold=1"  # the last one counts


def test_the_plugin_is_told_where_python_and_the_configuration_are() -> None:
    written_options = options(ganesha_conf.render(settings("/etc/my spillway.toml")))
    assert written_options["PYTHON", "Executable"] == f'"{sys.executable}"'
    assert written_options["PYTHON", "Config"] == '"/etc/my spillway.toml"'


def test_a_relative_configuration_is_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written_options = options(ganesha_conf.render(settings("s.toml")))
    assert written_options["PYTHON", "Config"] == f'"{tmp_path}/s.toml"'


@pytest.mark.parametrize(
    ("max_io_bytes", "buffer_bytes"),
    [
        (4096, None),
        (MIB, None),
        (MIB + 4096, 2 * MIB + 4096),
        (8 * MIB, 9 * MIB),
    ],
)
def test_rpc_buffers_hold_the_largest_request(max_io_bytes: int, buffer_bytes: int | None) -> None:
    written_options = options(ganesha_conf.render(settings(max_io_bytes=max_io_bytes)))
    for option in ("MaxRead", "MaxWrite", "PrefRead", "PrefWrite"):
        assert written_options["EXPORT", option] == str(max_io_bytes)
    for option in ("MaxRPCSendBufferSize", "MaxRPCRecvBufferSize"):
        wanted = None if buffer_bytes is None else str(buffer_bytes)
        assert written_options.get(("NFS_CORE_PARAM", option)) == wanted


@pytest.mark.parametrize("bad", ['"', "\\", "\n", "\r", "\t", "\x00", "\x7f", "\udcff"])
def test_paths_that_could_say_more_than_a_path(bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"/a{bad}; }} EXPORT {{"
    for key, made in (
        ("gateway.data_dir", settings(data_dir=path)),
        ("nfs.plugins_dir", settings(plugins_dir=path)),
        ("the path of the configuration", settings(path)),
    ):
        with pytest.raises(ConfigError) as caught:
            ganesha_conf.render(made)
        assert caught.value.key == key
    monkeypatch.setattr(sys, "executable", path)
    with pytest.raises(ConfigError, match="path of this Python"):
        ganesha_conf.render(settings())


def test_other_odd_paths_are_kept_as_they_are() -> None:
    odd = "/a b/{0}/#'é;%include"
    written_options = options(ganesha_conf.render(settings(f"{odd}/s.toml", data_dir=odd)))
    assert written_options["NFSV4", "RecoveryRoot"] == f'"{odd}/recovery"'


@pytest.mark.parametrize(
    ("bind", "rendered"),
    [
        ("0.0.0.0", "0.0.0.0"),
        ("::", "::"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("localhost", None),
        ("10.0.0", None),
        ("10.0.0.0/8", None),
        ("10.0.0.1; }", None),
        ("fe80::1%eth0", None),
    ],
)
def test_only_addresses_are_bound(bind: str, rendered: str | None) -> None:
    if rendered is None:
        with pytest.raises(ConfigError, match=r"nfs\.bind .*must be an IP address"):
            ganesha_conf.render(settings(bind=bind))
    else:
        written_options = options(ganesha_conf.render(settings(bind=bind)))
        assert written_options["NFS_CORE_PARAM", "Bind_Addr"] == rendered


def test_a_host_that_no_client_fits_has_no_access() -> None:
    written_options = options(ganesha_conf.render(settings()))
    assert written_options["EXPORT", "Access_Type"] == "None"
    assert written_options["CLIENT 0", "Clients"] == "127.0.0.0/8"
    assert written_options["CLIENT 1", "Clients"] == "::1"
    assert written_options["CLIENT 0", "Access_Type"] == "RW"
    assert written_options["CLIENT 0", "Squash"] == "None"


def test_clients_keep_their_order_and_their_rights() -> None:
    clients = ["10.0.0.7 ro all_squash", "10.0.0.0/8  rw", "fd00::/8 rw no_root_squash"]
    written_options = options(ganesha_conf.render(settings(clients=clients, squash="root")))
    rows = [
        [written_options[f"CLIENT {n}", option] for option in ("Clients", "Access_Type", "Squash")]
        for n in range(3)
    ]
    assert rows == [
        ["10.0.0.7", "RO", "All"],
        ["10.0.0.0/8", "RW", "Root"],
        ["fd00::/8", "RW", "None"],
    ]
    assert ("CLIENT 3", "Clients") not in written_options
    assert (
        written_options["EXPORT", "Anonymous_Uid"]
        == written_options["EXPORT", "Anonymous_Gid"]
        == "65534"
    )


def test_everybody_is_written_as_two_halves() -> None:
    written_options = options(ganesha_conf.render(settings(clients=["0.0.0.0/0 rw", "::/0 ro"])))
    assert written_options["CLIENT 0", "Clients"] == "0.0.0.0/1, 128.0.0.0/1"
    assert written_options["CLIENT 1", "Clients"] == "::/1, 8000::/1"


def test_who_may_mount_is_told_in_one_line_and_in_order() -> None:
    clients = ["10.0.0.7 ro all_squash", "10.0.0.0/8 rw", "::1 rw", "10.0.0.8 ro all_squash"]
    assert up.who_may_mount(settings(clients=clients)) == (
        "hosts that may mount: 10.0.0.7 (read, every user is nobody); "
        "10.0.0.0/8, ::1 (read and write, root is root); "
        "10.0.0.8 (read, every user is nobody); no others (nfs.clients, nfs.squash); users by sys"
    )
    assert "root is nobody" in up.who_may_mount(settings(squash="root"))


def test_every_line_has_a_form_that_the_server_can_read(tmp_path: Path) -> None:
    clients = ["10.0.0.7 ro all_squash", "::/0 ro", "0.0.0.0/0 rw"]
    made = settings("/a dir; {x} # é/s.toml", data_dir="/b;}", clients=clients, export="/é=x")
    export = ExportedDirectory("/one", 1, 2, 16, ("10.0.0.0/8 ro",), "all", 0, "me")
    text = ganesha_conf.render(made, [export, export._replace(name="/two", number=3)])
    assert export_blocks.unsound(text) is None
    read = export_blocks.read(text.partition(export_blocks.MARK)[2])
    assert read.fixed == {
        1: ("/é=x", 0, MIB, "sys"), 2: ("/one", 16, MIB, "sys"), 3: ("/two", 16, MIB, "sys"),
    }  # fmt: skip
    for wrong in ("{", "}", "x", "EXPORT {{", "a = b", "a = b; }", 'a = "b;', "%include x"):
        assert export_blocks.unsound(text + wrong + "\n") is not None


def test_write_changes_the_file_only_when_it_must(tmp_path: Path) -> None:
    made = settings(data_dir=str(tmp_path))
    assert ganesha_conf.write(made) is True
    before = made.ganesha_conf.stat()
    assert ganesha_conf.write(made) is False
    assert made.ganesha_conf.stat().st_ino == before.st_ino
    assert ganesha_conf.write(settings(data_dir=str(tmp_path), port=1)) is True
    assert list(tmp_path.iterdir()) == [made.ganesha_conf]
