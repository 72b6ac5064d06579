"""Processes of clients contend for one file, and nothing is lost."""

from __future__ import annotations

import json

from tests.support.client import MOUNT, start_program
from tests.support.guest.share import Records, Report
from tests.support.vm.client import ClientVm
from tests.t7_nfs.conftest import MakeSite

SECONDS = 4.0
OTHER = "/mnt/other"


def test_a_table_and_appended_records_lose_nothing(vm: ClientVm, make_site: MakeSite) -> None:
    """A second mount that shares nothing with the first is to the server as another client."""
    site = make_site()
    vm.mount(site.gateway.port, target=OTHER, options="hard,nosharecache")
    vm.run(["mkdir", str(MOUNT / "table")])
    started = [
        start_program(vm, "share.py", *words)
        for words in (
            ("table", MOUNT / "table", str(SECONDS), "3"),
            ("append", MOUNT / "own", str(SECONDS), "a", "b"),
            ("ask", MOUNT / "both", str(SECONDS), "here"),
            ("ask", f"{OTHER}/both", str(SECONDS), "there"),
        )
    ]
    table, own, here, there = (Report(**json.loads(one.wait().stdout)) for one in started)
    assert [*table.errors, *own.errors, *here.errors, *there.errors] == []
    assert sum(table.rounds.values()) > 0
    for path, rounds in (("own", own.rounds), ("both", here.rounds | there.rounds)):
        found = Records(
            **json.loads(start_program(vm, "share.py", "records", MOUNT / path).wait().stdout)
        )
        assert found == Records(rounds)
    vm.umount(OTHER)
