"""What people are told of checkpoints that clients removed, and what they may remove themselves."""

from __future__ import annotations

import pytest

from gateway.cli.main import main
from gateway.db.engine import Database
from gateway.lifecycle.trash.trash import Trash
from gateway.service.trash import removable, summary
from tests.support.checkpoints.trashing import opener
from tests.support.checkpoints.world import World
from tests.support.records import record

pytestmark = pytest.mark.usefixtures("control_socket_of_namespace")


def test_people_see_what_is_held_and_let_it_go(
    configured: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world = configured
    for path in ("run/step-1", "other/step-1", "third/step-1"):
        for name in ("a.distcp", ".metadata"):
            world.write(f"{path}/{name}", b"1")
            world.drain(f"{path}/{name}")
        of = path.partition("/")[0].encode()
        record(world.settings, world.directory(path), of, 1, path=path.encode())
        world.remove(f"{path}/a.distcp")
    file = str(world.settings.source)

    def run(*words: str) -> tuple[int, str]:
        status = main([words[0], "--config", file, *words[1:]])
        said = capsys.readouterr()
        return status, said.out + said.err

    trash = Trash(world.settings, Database(world.settings.database_url), opener(world.namespace))
    one, two, _three = [entry.id for entry in trash.entries()]
    status, said = run("trash", "list")
    assert (
        status == 0
        and f"held for a newer checkpoint: let it go: spillway trash release {one}" in said
    )
    assert "a client (uid 0): a client removed it" in said
    assert "3 held for a newer checkpoint" in run("status")[1]
    trash_summary = summary(trash)
    assert (trash_summary.entries, trash_summary.held, trash_summary.held_bytes) == (3, 3, 3)
    # All of the trash is not what may be the last that the bucket has of a run.
    status, said = run("trash", "empty", "--all")
    assert status == 2 and "0 checkpoints" in said
    assert removable(trash, None, 1 << 62) == []
    assert [entry.id for entry in removable(trash, [two], 1 << 62)] == [two]
    status, said = run("trash", "release", "t1", two)
    assert status == 2 and "t1 is not in the trash" in said
    assert run("trash", "release", two) == (
        0,
        f"{two}: released: it leaves the bucket within some minutes\n",
    )
    assert run("trash", "release", two)[0] == 1
    status, said = run("trash", "release", "/checkpoints/none")
    assert status == 1 and "nothing there is held" in said
    assert run("trash", "release", "/checkpoints/run")[0] == 0
    assert run("trash", "release", "/checkpoints/third/step-1", "--json")[0] == 0
    assert summary(trash).held == 0
    trash._database.close()
