"""The scrub as a person sees it: its command, its alarms and its figures."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from admin_api.metrics import of_status
from gateway.cli.status import lines as lines_of
from gateway.common import clock
from gateway.common.models import from_json
from gateway.namespace.data_files import DataFiles
from gateway.service import alarms
from gateway.service.status import Status
from tests.support import nfs4
from tests.support.drainsite import MIB, Site
from tests.support.gateway import Gateway, running
from tests.support.t12.scrub import Scrubbed, clean, cut_quietly, finish, flip_quietly
from tests.support.volumes import alarms_in, query, status_of


@pytest.fixture
def one(rclone_site: Site) -> Scrubbed:
    return Scrubbed(rclone_site)


def test_a_command_heals_on_a_running_gateway(tmp_path: Path) -> None:
    """With the NFS server, the drain and the hydrator, and a client that reads."""
    names = ("flipped", "cut", "gone", "object", "good", "lost")
    with running(tmp_path) as gateway, nfs4.Client(gateway.port) as client:
        gateway.spillway("mkdir", "run")
        top = client.handle("checkpoints", "run")
        data = {name: os.urandom(300_000) for name in names}
        for name, body in data.items():
            with client.opened(top, name) as file:
                file.write(body, 0)
        gateway.until_drained()
        inos = {bytes(n): i for n, i in query(gateway.settings, "SELECT name, ino FROM dirent")}
        files = DataFiles(gateway.settings.files_dir)
        paths = {name: files.path(inos[name.encode()], 0) for name in names}
        flip_quietly(paths["flipped"])
        cut_quietly(paths["cut"])
        paths["gone"].unlink()
        gateway.stored("run/object").unlink()
        facts = json.loads(gateway.spillway("scrub", "--json", "--deep", "run").stdout)
        assert (facts["found"], facts["healed"], facts["damaged"]) == (4, 4, 0)
        assert {one["path"].rpartition("/")[2] for one in facts["findings"]} == set(names[:4])
        gateway.until_drained()
        for name, body in data.items():
            handle = client.handle("checkpoints", "run", name)
            assert client.read(handle, 0, len(body)) == body, name
        assert gateway.objects()["run/object"] == data["object"]
        status = gateway.status()
        assert status["scrub"]["local"]["last"] is None, "only a part was compared"
        assert status["disk"]["lost_copies"]["files"] == 3
        lose_both(gateway, client, paths["lost"])
        # A file that is written again has no damage.
        with client.opened(top, "lost", empties=True) as file:
            file.write(b"new", 0)
        gateway.until_drained()
        assert "0 found, 0 healed, 0 damaged" in gateway.spillway("scrub").stdout
        assert alarms.of(from_json(Status, gateway.status()))["scrub_damage"] == 0
        missing = gateway.spillway("scrub", "run/none", check=False)
        assert missing.returncode == 2 and "there is no none" in missing.stderr


def lose_both(gateway: Gateway, client: nfs4.Client, path: Path) -> None:
    """Take the bytes of a file from the disk and from the bucket: a person is told."""
    flip_quietly(path)
    gateway.stored("run/lost").unlink()
    done = gateway.spillway("scrub", check=False)
    assert done.returncode == 1
    assert "damaged: /checkpoints/run/lost: bytes 0 to 299999 of data file" in done.stdout
    assert done.stdout.endswith("1 found, 0 healed, 1 damaged\n")
    status = from_json(Status, gateway.status())
    assert not status.healthy and alarms.of(status)["scrub_damage"] == 1
    assert any("DAMAGED" in line for label, line in lines_of(status) if label == "scrub")
    with pytest.raises(nfs4.Status):
        client.read(client.handle("checkpoints", "run", "lost"), 0, 1000)


def test_a_scrub_that_ends_no_pass_is_an_alarm(
    one: Scrubbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean(one, size=3 * MIB)
    assert alarms_in(status_of(one.site.settings))["scrub_late"] == 0
    scrub = one.scrub(local_days=2.0, bytes_per_second=1)
    scrub.step()
    now = [clock.now_ns() + 5 * 86_400 * clock.NS]
    monkeypatch.setattr(clock, "now_ns", lambda: now[0])
    assert alarms_in(status_of(one.site.settings))["scrub_late"] == 0
    now[0] += 2 * 86_400 * clock.NS
    assert alarms_in(status_of(one.site.settings))["scrub_late"] == 1
    finish(scrub)
    assert alarms_in(status_of(one.site.settings))["scrub_late"] == 0
    now[0] += 7 * 86_400 * clock.NS
    assert alarms_in(status_of(one.site.settings))["scrub_late"] == 1
    one.site.configure("scrub", local_days=0.0)
    assert alarms_in(status_of(one.site.settings))["scrub_late"] == 0


def test_figures_of_passes_are_in_status_and_metrics(one: Scrubbed) -> None:
    ino, data = clean(one)
    one.put("run/a", b"another's")
    one.run("objects")
    clean(one, "run/b")
    one.flip(ino + 1)
    one.run("local")
    facts = status_of(one.site.settings)
    last = facts["scrub"]["local"]["last"]
    assert (last["files"], last["found"], last["healed"], last["damaged"]) == (2, 1, 1, 0)
    assert last["bytes"] >= len(data) and last["ended_at"] and last["number"] == 1
    assert facts["scrub"]["objects"]["last"]["damaged"] == 1
    found = from_json(Status, facts)
    text = [line for label, line in lines_of(found) if label == "scrub"]
    assert any("1 looked at, 1 found, 0 healed, 1 DAMAGED" in line for line in text)
    samples = {
        (sample.name, sample.labels["kind"]): sample.value
        for metric in of_status(found)
        for sample in metric.samples
        if sample.name.startswith("spillway_scrub_")
    }
    assert samples["spillway_scrub_last_pass_healed", "local"] == 1
    assert samples["spillway_scrub_last_pass_damaged", "objects"] == 1
    assert samples["spillway_scrub_last_pass_timestamp_seconds", "local"] > 1e9
