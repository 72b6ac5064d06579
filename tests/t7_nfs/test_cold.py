"""The kernel's client reads, changes and truncates files whose bytes were evicted."""

from __future__ import annotations

import json

from tests.support.client import MOUNT, read_back, save
from tests.support.site import Site, flip
from tests.support.vm.client import ClientVm
from tests.support.waiting import until
from tests.t7_nfs.conftest import MIB, MakeSite


def used_bytes(site: Site) -> int:
    """Return the allocated bytes of all data files."""
    files = site.gateway.data_dir / "files"
    return sum(path.stat().st_blocks * 512 for path in files.rglob("*.[0-9]*"))


def test_a_cold_checkpoint_is_read_back(vm: ClientVm, make_site: MakeSite) -> None:
    site = make_site()
    files, _seconds = save(vm, "step_1", ranks=2, mib=5)
    site.gateway.until_drained()
    site.gateway.evict("step_1")
    assert used_bytes(site) < MIB
    assert vm.run(f"stat -c %s {MOUNT}/step_1/*").stdout.split() == [str(5 * MIB)] * 2
    assert read_back(vm, "step_1") == files
    until(lambda: used_bytes(site) >= 2 * 5 * MIB, "all files to be whole again")
    # They are served from the disk now, also without the bucket.
    site.server.stop()
    vm.drop_caches()
    vm.run(f"cat {MOUNT}/step_1/* > /dev/null")


def test_a_cold_file_is_changed_and_emptied(vm: ClientVm, make_site: MakeSite) -> None:
    site = make_site()
    vm.run(f"cd {MOUNT} && head -c 5000000 /dev/urandom > a && cp a b && cp a {'/tmp'}/a && sync")
    site.gateway.until_drained()
    site.gateway.evict("a", "b")
    vm.drop_caches()
    vm.run(f"cd {MOUNT} && printf more >> a && printf more >> /tmp/a && cmp a /tmp/a && : > b")
    assert vm.run(f"stat -c %s {MOUNT}/a {MOUNT}/b").stdout.split() == ["5000004", "0"]
    site.gateway.until_drained()
    site.gateway.evict("a")
    vm.drop_caches()
    vm.run(f"cmp {MOUNT}/a /tmp/a")
    checked = site.gateway.status()
    assert checked["dirty"]["files"] == 0


def test_a_damaged_object_is_an_error_and_no_wrong_byte(vm: ClientVm, make_site: MakeSite) -> None:
    site = make_site()
    vm.run(f"cd {MOUNT} && head -c 5000000 /dev/urandom > bad && cp bad good && sync")
    site.gateway.until_drained()
    site.gateway.evict("bad", "good")
    vm.drop_caches()
    stored = site.stored("bad")
    flip(stored, 4 * MIB + 5)
    done = vm.run(f"cat {MOUNT}/bad > /dev/null", check=False)
    assert done.exit_status != 0 and "Input/output error" in done.stderr
    vm.run(f"cat {MOUNT}/good > /dev/null")
    # The report of the hydrator is written once a second.
    until(lambda: '"path": "bad"' in json.dumps(site.gateway.status()), "it is shown as damaged")
    flip(stored, 4 * MIB + 5)
    until(
        lambda: vm.run(f"cat {MOUNT}/bad > /dev/null", check=False).exit_status == 0,
        "the file after its object was repaired",
        90.0,
    )
