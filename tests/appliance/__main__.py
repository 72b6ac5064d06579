"""Makes a gateway of a bare machine, and does what an operator does with it afterwards.

``python -m tests.appliance CACHE PLUGIN GANESHA ANSIBLE``, as root: so the machine's disk is made.

Each step prints how long it took. The first that fails ends the run with the output of its tool.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from admin_api import cpu_budget
from package.build import debian_version
from tests.appliance.choices import Choices
from tests.appliance.image import image
from tests.appliance.packages import (
    BROKEN,
    NEWER,
    NOVELTY,
    PREVIOUS,
    SECTION,
    THIS,
    packages,
    require_version,
)
from tests.appliance.playbook import succeeded
from tests.appliance.saves import CHECKPOINTS, MOUNT
from tests.appliance.stage import Stage
from tests.appliance.steps import timed
from tests.support.units import EXPOSURE_MAX, SERVICES
from tests.support.waiting import until

R = TypeVar("R", "Run", Choices)
DATASETS = {"name": "/datasets", "path": "team/sets", "clients": ["127.0.0.1 ro"]}
ALL = {"name": "/all", "clients": ["127.0.0.1 rw"], "squash": "root"}
FROM_LOOKING = ("--start-at-task", "spillway : Look for versions")
FROM_EXPORTS = ("--start-at-task", "spillway : Set the exports")
LAST = "/var/cache/spillway/last.json"
WATCHDOG = "/run/systemd/system/spillway-nfs.service.d/watchdog.conf"


class Run:
    """The steps, in their order.

    Args:
        stage: where they are done.
    """

    def __init__(self, stage: Stage) -> None:
        self._machine = stage.machine
        self._operator = stage.operator
        self._packages = stage.packages
        self._saves = stage.saves

    def check(self) -> None:
        """The check mode works before there is anything."""
        succeeded(self._operator.play("site.yml", "--check"))

    def install(self) -> None:
        """The playbook makes a gateway."""
        first = self._operator.play("site.yml")
        succeeded(first)
        assert first.changed > 10, first.output
        mounted = self._machine.ssh("findmnt -no FSTYPE,OPTIONS /var/lib/spillway").stdout
        assert mounted.startswith("xfs") and "noatime" in mounted
        assert "raid0" in self._machine.ssh("cat /proc/mdstat").stdout

    def repeat(self) -> None:
        """A second run changes nothing, and the check mode says so too."""
        for options in ((), ("--check",)):
            again = self._operator.play("site.yml", *options)
            succeeded(again)
            assert again.changed == 0, again.output

    def serve(self) -> None:
        """A client saves, and the bucket gets it. The services are what status shows."""
        self._machine.ssh(CHECKPOINTS)
        self._saves.save("run/step-1/a.bin")
        facts = self._machine.ssh("spillway status", check=False).stdout
        assert facts.startswith("gateway     healthy"), facts
        assert "units of systemd" in facts
        self._machine.ssh("systemctl start check-spillway")
        told = self._machine.ssh("cat /var/lib/prometheus/node-exporter/spillway.prom").stdout
        assert "spillway_healthy 1\n" in told, told

    def restart(self) -> None:
        """A killed NFS server comes back, and the client continues."""
        self._machine.ssh("systemctl kill --signal=KILL spillway-nfs")
        self._saves.save("run/step-2/b.bin")
        assert (
            "restarted once, last end: killed by KILL"
            in self._machine.ssh("spillway status", check=False).stdout
        )
        failed = self._machine.ssh("systemctl --failed --plain --no-legend").stdout
        assert failed == "", failed

    def hang(self) -> None:
        """An NFS server that stands still is killed by the watchdog of systemd, comes back, and the
        client continues."""
        unit = "[Service]\\nWatchdogSec=20\\n"
        self._machine.ssh(f"mkdir -p $(dirname {WATCHDOG}) && printf '{unit}' > {WATCHDOG}")
        self._machine.ssh("systemctl daemon-reload && systemctl restart spillway-nfs")
        self._machine.ssh("systemctl kill --signal=STOP spillway-nfs")

        def killed() -> bool:
            facts = self._machine.ssh("spillway status", check=False).stdout
            return "last end: killed by KILL (watchdog)" in facts

        until(killed, "the watchdog", 600)
        self._saves.save("run/step-4/hung.bin")
        self._machine.ssh(f"rm {WATCHDOG} && systemctl daemon-reload")

    def sandbox(self) -> None:
        """The units that run are exposed no more than the documents state, and the processes have
        no capability but that of the port. The admin API may raise its priority."""
        for unit in SERVICES:
            shown = self._machine.ssh(f"systemd-analyze security --no-pager {unit}").stdout
            match = re.search(r"exposure level for \S+: ([\d.]+)", shown)
            assert match is not None and float(match[1]) <= EXPOSURE_MAX, shown
        script = "grep CapEff /proc/$(systemctl show -P MainPID spillway-{})/status"
        for name, capabilities in {"nfs": "0000000000000400", "drain": "0000000000000000"}.items():
            assert self._machine.ssh(script.format(name)).stdout.split()[1] == capabilities
        threads = "ps -L -o ni= -p $(systemctl show -P MainPID spillway-admin)"
        assert set(self._machine.ssh(threads).stdout.split()) == {"0", str(cpu_budget.ANSWERS)}
        users = self._machine.ssh("ps -o user= -C ganesha.nfsd").stdout.split()
        assert users == ["spillway"]

    def fail_to_copy(self) -> None:
        """An upgrade that cannot copy the database is given up, and the gateway serves again."""
        obstacle = f"/var/lib/spillway/upgrades/namespace-{debian_version(PREVIOUS)}"
        self._machine.ssh(f"runuser -u spillway -- mkdir -p {obstacle}")
        done = self._operator.play(
            "site.yml", *FROM_LOOKING, spillway_package=str(self._packages[THIS])
        )
        assert done.exit_status != 0 and "serves again" in done.output, done.output
        assert "Copy the database: " in done.output, done.output
        self._machine.ssh(f"rmdir {obstacle}")
        require_version(self._machine, PREVIOUS)
        self._saves.save("run/step-3/copy.bin")

    def fail_to_upgrade(self) -> None:
        """A package that does not serve gives way to the one before, by itself, with the database
        as it was before the migration, and without the key that only the new version knows."""
        done = self._operator.play(
            "site.yml",
            spillway_package=str(self._packages[BROKEN]),
            spillway_settings=self._settings(SECTION, NOVELTY, True),
            spillway_start_seconds=120,
        )
        assert done.exit_status != 0 and "serves again" in done.output, done.output
        assert "Let the NFS server serve: " in done.output, done.output
        assert NOVELTY not in self._configuration()
        require_version(self._machine, PREVIOUS)
        self._saves.save("run/step-3/c.bin")

    def upgrade_from_the_version_before(self) -> None:
        """This version takes the database over, and the client continues. There is a way back
        unless the database was migrated, because clients have used it since."""
        spillway_package = str(self._packages[THIS])
        succeeded(self._operator.play("site.yml", spillway_package=spillway_package))
        require_version(self._machine, THIS)
        self._saves.save("run/step-4/d.bin")
        self._saves.require_all()
        last = self._machine.ssh(f"cat {LAST}").stdout
        back = self._operator.play("rollback.yml")
        if json.loads(last)["migrated"]:
            assert back.exit_status != 0 and "the upgrade migrated the database" in back.output
        else:
            succeeded(back)
            require_version(self._machine, PREVIOUS)
            succeeded(self._operator.play("site.yml", spillway_package=spillway_package))
        require_version(self._machine, THIS)

    def upgrade(self) -> None:
        """A newer package serves, and the client continues. The configuration is a new one too,
        with exports."""
        done = self._operator.play(
            "site.yml",
            spillway_package=str(self._packages[NEWER]),
            spillway_settings=self._settings("cache", "evict_to", 0.6),
            spillway_exports=[DATASETS, ALL],
        )
        succeeded(done)
        require_version(self._machine, NEWER)
        self._saves.save("run/step-5/e.bin")
        assert "evict_to = 0.6" in self._configuration()
        self._machine.ssh(MOUNT.format("sets", "datasets"))
        refused = self._machine.ssh("touch /mnt/sets/x", check=False)
        assert "Read-only file system" in refused.stderr, refused
        self._machine.ssh("umount /mnt/sets && test -d /mnt/ckpt/team/sets")

    def export(self) -> None:
        """Exports are changed and removed by the roles, which say so only if they do."""
        again = self._operator.play("site.yml", *FROM_EXPORTS, spillway_exports=[DATASETS, ALL])
        succeeded(again)
        assert again.changed == 0, again.output
        done = self._operator.play(
            "site.yml", *FROM_EXPORTS,
            spillway_exports=[{**DATASETS, "squash": "all"}],
            spillway_removed_exports=["/all", "/never"],
        )  # fmt: skip
        succeeded(done)
        assert done.changed == 2, done.output
        listed = json.loads(self._machine.ssh("spillway export list --json").stdout)
        found = [
            (entry["name"], entry["path"], entry["squash"], entry["served"]) for entry in listed
        ]
        assert found == [("/datasets", "/checkpoints/team/sets", "all", True)], listed

    def roll_back(self) -> None:
        """The operator goes back to this version, whose schema is the same, and to its
        configuration. A note of another upgrade is not believed."""
        self._machine.ssh(f"cp {LAST} /root/last.json")
        succeeded(self._operator.play("rollback.yml"))
        self._machine.ssh(f"test ! -e {LAST} && mv /root/last.json {LAST}")
        again = self._operator.play("rollback.yml")
        assert again.exit_status != 0 and "do not know the way back" in again.output, again.output
        assert "evict_to" not in self._configuration()
        require_version(self._machine, THIS)
        self._saves.save("run/step-6/f.bin")
        self._saves.require_all()

    def upgrade_by_hand(self) -> None:
        """dpkg stops what runs, migrates, and starts it again. It gives up a package whose end is
        missing, and then the version before runs again."""
        package = f"/var/cache/spillway/spillway_{debian_version(NEWER)}.deb"
        cut = f"head -c 1000000 {package} > /root/cut.deb && dpkg -i /root/cut.deb"
        assert self._machine.ssh(cut, check=False).returncode != 0
        require_version(self._machine, THIS)
        self._machine.ssh("systemctl is-active spillway.target")
        self._machine.ssh(f"dpkg -i {package}")
        require_version(self._machine, NEWER)
        self._saves.save("run/step-7/g.bin")

    def uninstall(self) -> None:
        """The package and what watches it are gone, and the data are not."""
        self._machine.ssh("umount -l /mnt/ckpt")
        succeeded(self._operator.play("uninstall.yml"))
        left = self._machine.ssh("ls /var/lib/spillway /etc/spillway; id spillway").stdout
        assert "namespace.db" in left and "spillway.toml" in left
        assert self._machine.ssh("test -e /usr/bin/spillway", check=False).returncode != 0
        units = self._machine.ssh("systemctl list-units --all '*spillway*'; systemctl --failed")
        assert "check-spillway" not in units.stdout, units.stdout

    def _settings(self, section: str, key: str, value: Any) -> dict[str, Any]:
        """Return the settings of the gateway with one more."""
        return {**self._operator.values["spillway_settings"], section: {key: value}}

    def _configuration(self) -> str:
        return self._machine.ssh("cat /etc/spillway/spillway.toml").stdout

    STEPS = (
        *(check, install, repeat, serve, restart, fail_to_copy, fail_to_upgrade),
        *(upgrade_from_the_version_before, sandbox, hang, upgrade, export, roll_back),
        *(upgrade_by_hand, uninstall),
    )


def _do(
    kind: type[R],
    stage: Callable[[str], Stage],
    steps: Sequence[Callable[[R], None]],
    names: Sequence[str],
) -> None:
    """Do the steps of a machine that are named, or all. Without one it is not booted."""
    wanted = [step for step in steps if not names or step.__name__ in names]
    if wanted:
        with stage(kind.__name__.lower()) as entered:
            run = kind(entered)
            for step in wanted:
                timed(step.__name__.replace("_", " "), partial(step, run))


def main() -> int:
    """Run all steps. Returns 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.appliance", description=__doc__)
    for name in ("cache", "plugin", "ganesha", "ansible"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--steps", nargs="*", default=[], help="by name (default: all)")
    args = parser.parse_args()
    made = timed("image", lambda: image(args.cache))
    with tempfile.TemporaryDirectory(prefix="appliance-") as directory:
        scratch = Path(directory)
        built = timed("packages", lambda: packages(args.plugin, args.ganesha, scratch))

        def stage(name: str) -> Stage:
            console = args.cache / f"console-{name}.log"
            return Stage(made, built, args.ansible, scratch / name, console)

        _do(Run, stage, Run.STEPS, args.steps)
        _do(Choices, stage, Choices.STEPS, args.steps)
    return 0


if __name__ == "__main__":
    sys.exit(main())
