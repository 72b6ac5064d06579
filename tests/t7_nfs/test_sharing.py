"""Processes of clients contend for one file, and nothing is lost."""

from __future__ import annotations

import json
from contextlib import ExitStack

from tests.support.client import MOUNT, start_program
from tests.support.guest.share import Records, Report
from tests.support.vm.client import ClientVm
from tests.t7_nfs.conftest import MakeGateway

SECONDS = "4"
OTHER = "/mnt/other"


def test_a_table_and_appended_records_lose_nothing(vm: ClientVm, make_gateway: MakeGateway) -> None:
    """The second mount shares nothing with the first: the server is asked for each lock."""
    gateway = make_gateway()
    vm.run(["mkdir", str(MOUNT / "table")])
    with ExitStack() as mounted:
        vm.mount(gateway.port, target=OTHER, options="hard,nosharecache")
        mounted.callback(vm.umount, OTHER)
        started = [
            start_program(vm, "share.py", *words)
            for words in (
                ("table", MOUNT / "table", SECONDS, "3"),
                ("append", MOUNT / "own", SECONDS, "a", "b"),
                ("ask", MOUNT / "both", SECONDS, "here"),
                ("ask", f"{OTHER}/both", SECONDS, "there"),
            )
        ]
        table, own, report, there = (
            Report(**json.loads(command.wait().stdout)) for command in started
        )
    assert [*table.errors, *own.errors, *report.errors, *there.errors] == []
    assert sum(table.rounds.values()) > 0
    for path, rounds in (("own", own.rounds), ("both", report.rounds | there.rounds)):
        done = start_program(vm, "share.py", "records", MOUNT / path).wait()
        assert Records(**json.loads(done.stdout)) == Records(rounds)
