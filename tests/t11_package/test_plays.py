"""Parts of the roles, run against a copy of this machine's files. Services are not started."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.support.checkout import ROOT
from tests.support.t11 import apart

PROGRAM = ROOT / "build/ansible/bin/ansible-playbook"
VALUES = {"spillway_started": False, "spillway_settings": {"bucket": {"name": "b"}}}
KEYS = {"spillway_access_key_id": "id", "spillway_secret_access_key": "s3cret"}
CHECK = ROOT / "ansible/roles/monitoring/templates/check-spillway.j2"
CREDENTIALS = "/etc/spillway/credentials"
FROM_USER = ("--start-at-task", "database : Look for the user and the database")
_ARCHIVE = """\
: > /var/lib/dpkg/status
rm -rf /etc/apt/sources.list* /var/lib/apt/lists/*
package() {
    mkdir -p /mnt/$1-$2/DEBIAN /mnt/archive /var/cache/spillway
    printf "Package: $1\\nVersion: $2\\nArchitecture: all\\n$3" > /mnt/$1-$2/DEBIAN/control
    printf "Maintainer: x <x@x>\\nDescription: x\\n" >> /mnt/$1-$2/DEBIAN/control
    dpkg-deb --build /mnt/$1-$2 /var/cache/spillway/$1_$2.deb >&2
}
package nfs-ganesha 9
package spillway 1 "Depends: nfs-ganesha (= 9)\\n"
dpkg --install /var/cache/spillway/*.deb >&2
apt-mark hold nfs-ganesha >&2
package nfs-ganesha 10
mv /var/cache/spillway/nfs-ganesha_10.deb /mnt/archive
package spillway 2 "Depends: nfs-ganesha (= 10)\\n"
cd /mnt/archive && dpkg-scanpackages . > Packages
echo "deb [trusted=yes] file:/mnt/archive ./" > /etc/apt/sources.list
"""
_FIREWALL = """\
package nftables 1
dpkg --install /var/cache/spillway/nftables_1.deb >&2
said() { printf "#!/bin/sh\\n$2\\n" > $1 && chmod +x $1; }
said /usr/sbin/nft "exit 0"
said /usr/bin/systemctl "echo LoadState=loaded; echo ActiveState=active; echo enabled"
printf "flush ruleset\\nmine\\n" > /etc/nftables.conf
rm -f /usr/sbin/sshd
"""
_SSHD = "port 22\\nlistenaddress 10.0.0.1:2200\\nlistenaddress [fe80::1]:22\\npermitlisten any"
_KEEP = "(cd /var/cache/spillway && mv nfs-ganesha_9.deb nfs-ganesha_9_all.deb)"
_CLUSTER = """\
rm -rf /etc/postgresql/* /var/lib/postgresql/*
mkdir -m 2777 /run/postgresql
version=$(ls /usr/lib/postgresql | sort -n | tail -1)
pg_createcluster $version main -- --no-sync >&2
trap "pg_ctlcluster -m immediate $version main stop" EXIT
pg_ctlcluster $version main start -o "-c listen_addresses=" >&2
"""


def play(directory: Path, *options: str, what: dict[str, Any], **values: Any) -> str:
    """Write a playbook and an inventory of this machine. Returns the command that plays it.

    Args:
        what: the play's tasks or roles.
        options: options of ansible-playbook.
        values: variables.
    """
    assert PROGRAM.exists(), "make ansible-lint installs Ansible"
    number = len(list(directory.glob("play*.json")))
    book, inventory = (directory / f"{name}{number}.json" for name in ("play", "inventory"))
    book.write_text(json.dumps([{"hosts": "all", "gather_facts": False, **what}]))
    host = {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3"}
    inventory.write_text(json.dumps({"all": {"hosts": {"here": {**host, **VALUES, **values}}}}))
    environ = ["env", f"ANSIBLE_ROLES_PATH={ROOT / 'ansible/roles'}", "ANSIBLE_HOME=/mnt/home"]
    return shlex.join([*environ, str(PROGRAM), "-i", str(inventory), str(book), *options])


def part(tasks: str) -> dict[str, Any]:
    """Return a play of some tasks of the role spillway."""
    return {"tasks": [{"import_role": {"name": "spillway", "tasks_from": tasks}}]}


def test_credentials_go_with_their_variable_unless_another_wrote_them(tmp_path: Path) -> None:
    written = play(tmp_path, what=part("configure"), **KEYS)
    emptied = play(tmp_path, what=part("configure"))
    script = [
        *(f"{written} >&2", f"grep s3cret {CREDENTIALS}", f"{emptied} >&2"),
        *(f"ls {CREDENTIALS} || echo gone", f"echo mine > {CREDENTIALS}", f"{emptied} >&2"),
        f"cat {CREDENTIALS}",
    ]
    said = apart.said("\n".join(script), tmp_path)
    assert said == "aws_secret_access_key = s3cret\ngone\nmine\n"


def test_a_difference_that_is_shown_has_no_password(tmp_path: Path) -> None:
    settings = {"namespace": {"url": "postgresql://u:s3cret@h/s"}}
    shown = play(tmp_path, "--diff", what=part("configure"), spillway_settings=settings)
    said = apart.said(f"{shown} && grep -c s3cret /etc/spillway/spillway.toml", tmp_path)
    assert said.count("s3cret") == 0 and said.endswith("\n1\n")


@pytest.mark.parametrize("note", ["", json.dumps({"from": "1", "to": "2", "migrated": False})])
def test_a_note_of_another_upgrade_is_no_way_back(note: str, tmp_path: Path) -> None:
    back = play(tmp_path, what=part("rollback"))
    script = ["mkdir -p /var/cache/spillway && cd /var/cache/spillway"]
    if note:
        script.append(f"echo {shlex.quote(note)} > last.json")
    said = apart.said("\n".join([*script, f"{back} || true"]), tmp_path)
    assert ("do not know the way back" if note else "upgraded nothing, or went back") in said


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({}, True),
        ({"gateway": {"data_dir": "/nvme2"}}, True),
        ({"gateway": {"data_dir": "/nvme/spillway/"}}, False),
    ],
)
def test_the_data_directory_is_on_the_file_system_that_is_made(
    settings: dict[str, Any], refused: bool, tmp_path: Path
) -> None:
    site = play(
        *(tmp_path, "--check"), what={"roles": ["storage", "spillway"]},
        spillway_settings=settings, storage_mount_point="/nvme", storage_devices=["/dev/none"],
    )  # fmt: skip
    said = apart.said(f"{site} || true", tmp_path)
    assert ("which is not below it" in said) is refused, said
    assert ("Make the file system" in said) is not refused, said


def test_root_and_the_user_of_the_gateway_come_to_the_database_and_no_other(tmp_path: Path) -> None:
    made = play(*(tmp_path, *FROM_USER), what={"roles": ["database"]}, database_engine="postgresql")
    ask = "psql -XAt -h /run/postgresql -U spillway -c 'SELECT current_user' spillway"
    script = [
        *(f"{_CLUSTER}{made} >&2", ask, f"runuser -u spillway -- {ask}"),
        *(f"runuser -u nobody -- {ask} 2>&1 | grep -o 'authentication failed'", made),
    ]
    said = apart.said("\n".join(script), tmp_path)
    assert said.startswith("spillway\nspillway\nauthentication failed\n")
    assert re.search(r"changed=0 .* failed=0", said), said


@pytest.mark.parametrize(
    ("program", "healthy", "alarm"),
    [
        ("echo good", 1, ""),
        ("echo full; exit 1", 0, "full\n"),
        ("echo begun; exec sleep 60", 0, "begun\nspillway status was ended without an answer"),
        ("kill -KILL $$", 0, "\nspillway status was ended without an answer"),
    ],
)
def test_a_state_that_does_not_come_is_bad(
    program: str, healthy: int, alarm: str, tmp_path: Path
) -> None:
    check = "/usr/local/sbin/check-spillway"
    template = {"src": str(CHECK), "dest": check, "mode": "0755"}
    written = play(
        tmp_path, what={"tasks": [{"template": template}]},
        monitoring_answer_seconds=1, monitoring_alarm_command="cat > /mnt/alarm",
    )  # fmt: skip
    script = [
        f"{written} >&2 && mkdir -p /var/lib/prometheus/node-exporter && : > /mnt/alarm",
        f"printf '#!/bin/sh\n%s\n' {shlex.quote(program)} > /usr/bin/spillway",
        f"chmod +x /usr/bin/spillway && status=0 && {check} >&2 || status=$?",
        "grep '^spillway' /var/lib/prometheus/node-exporter/spillway.prom",
        "echo $status && cat /mnt/alarm",
    ]
    said = apart.said("\n".join(script), tmp_path)
    assert said.startswith(f"spillway_healthy {healthy}\n{1 - healthy}\n{alarm}"), said
    assert bool(alarm) or said.count("\n") == 2, said


def test_a_package_brings_its_nfs_server_although_that_one_is_held(tmp_path: Path) -> None:
    """Without lists of packages there is only what is installed, and that is enough if it fits. The
    way back takes the older one from beside the package."""
    first, second = (
        play(tmp_path, what=part("install"), spillway_new={"stdout": version}) for version in "12"
    )
    shown = "dpkg-query --show --showformat='${Package} ${Version} ${db:Status-Want}\\n'"
    script = [_ARCHIVE, "dpkg --purge spillway >&2", f"{first} >&2", shown]
    script += ["apt-get update >&2", f"{second} >&2", shown, _KEEP, f"{first} >&2", shown]
    said = apart.said("\n".join(script), tmp_path)
    old = "nfs-ganesha 9 hold\nspillway 1 install\n"
    assert said == f"{old}nfs-ganesha 10 hold\nspillway 2 install\n{old}"


@pytest.mark.parametrize("kept", [False, True])
def test_an_upgrade_needs_the_nfs_server_to_go_back_to(kept: bool, tmp_path: Path) -> None:
    """The archive has the new NFS server only. Without the old one beside the package, the upgrade
    is refused before it reads or stops anything."""
    versions = {"spillway_installed": {"stdout": "installed 1"}, "spillway_new": {"stdout": "2"}}
    upgrade = play(tmp_path, what=part("upgrade"), **versions)
    script = [_ARCHIVE, *([_KEEP] if kept else []), f"{upgrade} || true"]
    said = apart.said("\n".join(script), tmp_path)
    told = "put the package of nfs-ganesha 9 into /var/cache/spillway"
    assert (told in said, "Read the configuration of the old version" in said) == (not kept, kept)


_RESTORES = """\
#!/bin/sh
echo "$(id -un) $*" >> /mnt/calls
chmod 666 /mnt/calls
case $1 in
restore)
    [ -e /mnt/namespace ] && { echo '{"restored": false}'; exit 0; }
    touch /mnt/namespace
    echo '{"restored": true}'
    exit 1 ;;
bucket) echo '{"reachable": true, "error": null}' ;;
*) echo current ;;
esac
"""

_STOPPED = """\
#!/bin/sh
case $1 in
is-enabled) echo disabled; exit 1 ;;
show) echo LoadState=loaded; echo ActiveState=inactive ;;
esac
"""


def test_a_restore_takes_the_place_of_a_new_namespace_once(tmp_path: Path) -> None:
    plays = [
        play(tmp_path, what=part("run"), spillway_restore=restores)
        for restores in (False, True, True)
    ]
    script = [
        f"cat > /usr/bin/spillway <<'END'\n{_RESTORES}END\nchmod 755 /usr/bin/spillway",
        f"cat > /usr/bin/systemctl <<'END'\n{_STOPPED}END\nchmod 755 /usr/bin/systemctl",
        "chmod 755 /mnt; rm -rf /var/lib/spillway; install -d -o spillway /var/lib/spillway",
        f"{plays[0]} >&2; grep -c restore /mnt/calls || rm /mnt/calls",
        f"{plays[1]} | grep -o changed=.; head -2 /mnt/calls; {plays[2]} | grep -o changed=.",
    ]
    said = apart.said("\n".join(script), tmp_path)
    assert said.splitlines() == [
        *("0", "changed=1", "root restore --if-none --json", "spillway init", "changed=0"),
    ]


def test_the_prefix_is_the_name_of_the_host_unless_the_gateway_has_another(tmp_path: Path) -> None:
    configured = play(tmp_path, what=part("configure"))
    own = "/etc/spillway/spillway.toml"
    script = [
        *(
            f"{configured} >&2",
            f"grep '^prefix' {own}",
            f"{configured} >&2",
            f"grep '^prefix' {own}",
        ),
        *(f"sed -i /^prefix/d {own}", f"{configured} >&2", f"grep '^prefix' {own}"),
    ]
    said = apart.said("\n".join(script), tmp_path)
    assert said.splitlines() == ['prefix = "here"', 'prefix = "here"', 'prefix = ""']


def test_the_configuration_is_roots_and_the_gateway_adds_to_it(tmp_path: Path) -> None:
    configured = play(tmp_path, what=part("configure"), **KEYS)
    own = "cd /etc/spillway && runuser -u spillway --"
    script = [
        "install -d -o spillway -g spillway -m 750 /etc/spillway",
        f"{configured} >&2",
        "stat -c '%U:%G %a' /etc/spillway",
        f"{own} touch spillway.id && echo added",
        *(f"{own} sh -c 'touch x && mv -f x {name}' || echo refused" for name in (CREDENTIALS,)),
        f"{own} rm -f spillway.toml || echo refused",
        f"{own} cat spillway.toml | grep '^prefix'",
    ]
    said = apart.said("\n".join(script), tmp_path)
    assert said == 'root:spillway 1770\nadded\nrefused\nrefused\nprefix = "here"\n'


def test_a_configuration_that_cannot_be_read_keeps_the_prefix_that_it_may_have(
    tmp_path: Path,
) -> None:
    configured = play(tmp_path, what=part("configure"))
    own = "/etc/spillway/spillway.toml"
    script = [f"{configured} >&2", f"echo damaged > {own}", f"{configured} || cat {own}"]
    said = apart.said("\n".join(script), tmp_path)
    assert "Look for the prefix" in said and said.endswith("\ndamaged\n")


@pytest.mark.parametrize(
    ("sshd", "ports", "told"),
    [
        ("", [], "22"),
        (f"echo '{_SSHD}'", [], "22, 2200"),
        (f"echo '{_SSHD}'", [2022], "2022"),
        ("echo no hostkeys; exit 255", [], None),
    ],
)
def test_the_firewall_adds_its_table_and_lets_ssh_in_where_it_listens(
    sshd: str, ports: list[int], told: str | None, tmp_path: Path
) -> None:
    """What the machine has of its own rules stays. An ssh server that does not say where it listens
    is not shut out."""
    ruled = play(tmp_path, what={"roles": ["firewall"]}, firewall_ssh_ports=ports)
    script = [_ARCHIVE, _FIREWALL]
    if sshd:
        script.append(f"said /usr/sbin/sshd {shlex.quote(sshd)}")
    rules = "/etc/nftables.d/spillway.nft"
    script += [
        f"{ruled} >&2 || echo failed",
        f"{ruled} | grep -o 'changed=0.*failed=0' || echo failed",
        f"cat /etc/nftables.conf; grep -o 'saddr 0.0.0.0/0 tcp dport .*' {rules} || echo none",
    ]
    said = apart.said("\n".join(script), tmp_path)
    if told is None:
        assert said == "failed\nfailed\nflush ruleset\nmine\nnone\n"
        return
    first, *rest = said.splitlines()
    assert first.startswith("changed=0"), said
    assert rest[:3] == ["flush ruleset", "mine", 'include "/etc/nftables.d/*.nft"']
    assert rest[3] == f"saddr 0.0.0.0/0 tcp dport {{ {told} }} accept"


@pytest.mark.parametrize(
    ("role", "unit", "status", "fails"),
    [("admin", "admin", 5, False), ("admin", "admin", 1, True), ("kerberos", "nfs", 1, True)],
)
def test_a_service_that_cannot_be_restarted_fails_the_run(
    role: str, unit: str, status: int, fails: bool, tmp_path: Path
) -> None:
    """At the first run there is no such unit, which is no failure."""
    (tmp_path / "keytab").write_text("keys")
    (tmp_path / "keytab").chmod(0o644)
    changed = play(
        tmp_path, what={"roles": [role], "gather_facts": role == "kerberos"},
        admin_tls="files", admin_certificate="x", admin_private_key="y",
        kerberos_realm="EXAMPLE.ORG", kerberos_keytab=str(tmp_path / "keytab"),
    )  # fmt: skip
    script = [
        f"printf '#!/bin/sh\\necho \"$@\" > /mnt/asked; exit {status}\\n' > /usr/bin/systemctl",
        f"{changed} >&2 && echo done || echo failed",
        "cat /mnt/asked",
    ]
    said = apart.said("\n".join(script), tmp_path)
    assert said == f"{'failed' if fails else 'done'}\ntry-restart spillway-{unit}.service\n"


def test_the_tag_of_a_role_plays_it_alone(tmp_path: Path) -> None:
    said = apart.said(
        f"{PROGRAM} -i here, {ROOT / 'ansible/site.yml'} --list-tasks --tags firewall", tmp_path
    )
    names = re.findall(r"^ +([a-z]+) : (?!Validating arguments)", said, re.MULTILINE)
    assert set(names) == {"firewall"} and len(names) > 4
