"""The metrics, the alert rules and the dashboard, against the real output of a gateway."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import select

from admin_api import metrics
from admin_api.access.principal import Role
from admin_api.access.tokens import create
from admin_api.dashboard import Sample, Sampler, put
from admin_api.requests import open_gateway
from admin_api.store import SampleTable
from admin_api.tls import VALID, Certificate, certificate_end_ns
from gateway.common import clock
from gateway.config import datadir
from gateway.config.settings import Settings
from gateway.db.compiled import Statement
from gateway.service import status
from gateway.service.checkpoints import CatalogueStatus, Run
from tests.support import nfs4
from tests.support.adminsite import AdminSite, admin_site
from tests.support.gateway import Gateway, running
from tests.support.ports import free_port
from tests.support.waiting import until

MONITORING = Path(__file__).parents[2] / "docs" / "monitoring"
_METRIC = re.compile(r"\bspillway_[a-z0-9_]+")
_sample: Any = SampleTable.__table__
SAMPLES = Statement(select(*_sample.c).order_by(_sample.c.at_ns))
MINUTE_NS = 60 * clock.NS


def promtool(*words: str, text: str | None = None) -> None:
    done = subprocess.run(
        ["promtool", *words], input=text, capture_output=True, text=True, cwd=MONITORING
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr, done.stderr  # the advice of the linter


def values(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return the samples by name and values of labels."""
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def save(settings: Settings, name: str) -> None:
    """Save a file of 100,000 bytes by NFS."""
    with nfs4.Client(settings.nfs.port) as client:
        root = client.handle(settings.nfs.export.strip("/"))
        with client.opened(root, name) as file:
            file.write(b"x" * 100_000)


PROCESSES = ("up", "ganesha", "drain", "cache", "checkpoints", "recovery", "admin")
REPORTED = (
    "spillway_space_headroom_bytes",
    "spillway_drain_waiting_files",
    "spillway_hydrate_waiting_files",
    "spillway_names_copied_age_seconds",
)
"""A metric of each report: the NFS server's of the disk, the drain's, the hydrator's, and that of
the copy of the names."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, str, Settings]]:
    """A running gateway with its admin API: the gateway, the text of its metrics, its settings."""
    port = free_port()
    directory = tmp_path_factory.mktemp("metrics")
    admin = {"enabled": True, "port": port, "metrics_public": True}
    with running(directory, {"admin": admin, "drain": {"settle_seconds": 0.1}}) as site:
        settings = site.settings
        save(settings, "one.pt")
        site.until_drained()

        site.until_said("listening on http", 1)

        def scraped() -> str:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
                answer = http.get("/metrics")
            assert answer.status_code == 200, answer.text
            return answer.text

        def is_told() -> bool:
            """Whether files are counted, the drain has reported the upload, all processes have
            begun, and those that report have done so."""
            found = values(scraped())
            sent = found.get(("spillway_drain_sent_bytes_total", ()), 0)
            is_counted = ("spillway_files", ("resident",)) in found
            up = [found.get(("spillway_process_up", (process,)), 0) for process in PROCESSES]
            is_reported = all((name, ()) in found for name in REPORTED)
            # A report between the answer of the PUT and its commit has the bytes only.
            is_sent = sent >= 100_000 and found.get(("spillway_drain_uploads_total", ())) == 1
            return is_sent and is_counted and all(up) and is_reported

        until(is_told, "the figures of the upload")
        yield site, scraped(), settings


def test_metrics_are_well_formed_and_true(gateway: tuple[Gateway, str, Settings]) -> None:
    _site, text, _settings = gateway
    promtool("check", "metrics", text=text)
    found = values(text)
    for process in PROCESSES:
        assert found["spillway_process_up", (process,)] == 1
    assert found["spillway_nfs_bytes_total", ("in",)] >= 100_000
    assert found["spillway_drain_sent_bytes_total", ()] >= 100_000
    assert found["spillway_drain_uploads_total", ()] == 1
    assert found["spillway_s3_requests_total", ("drain", "200")] >= 1
    assert found["spillway_bucket_state", ("reachable",)] == 1
    assert found["spillway_dirty_bytes", ()] == 0
    assert found["spillway_nfs_operation_seconds_count", ("create",)] >= 1
    count = found["spillway_commit_seconds_count", ()]
    assert count == found["spillway_commit_seconds_bucket", ("+Inf",)] > 0


FAMILIES = {
    "nfs_operation_seconds": "operation le",
    "nfs_delayed": "operation",
    "nfs_errors": "operation error",
    "nfs_bytes": "direction",
    "commit_changes": "le",
    "commit_seconds": "le",
    "dirty_files": "",
    "dirty_bytes": "",
    "space_level": "level",
    "space_headroom_bytes": "",
    "space_dirty_limit_bytes": "",
    "space_slow_from_ratio": "",
    "space_reserve_bytes": "",
    "evict_from_ratio": "",
    "evict_to_ratio": "",
    "names_copied_age_seconds": "",
    "names_waiting": "",
    "drain_uploads": "",
    "drain_sent_bytes": "",
    "drain_requests_at_once": "",
    "hydrate_bytes": "",
    "hydrate_files": "",
    "evicted_bytes": "",
    "s3_requests": "process status",
    "bucket_state": "state",
    "rpo_seconds": "",
    "run_rpo_seconds": "run",
    "run_at_risk_bytes": "run",
    "alarm": "alarm",
    "process_up": "process",
    "info": "name version",
}
"""Metrics that people watch, with all of their labels."""


def test_each_family_is_there_with_bounded_labels(gateway: tuple[Gateway, str, Settings]) -> None:
    _site, text, settings = gateway
    families_of = {one.name: one for one in text_string_to_metric_families(text)}
    for name, labels in FAMILIES.items():
        metric = families_of[f"spillway_{name}"]
        told = {label for sample in metric.samples for label in sample.labels}
        # A run is named only while it has something at risk.
        assert told == set(labels.split()) or name.startswith("run_"), (name, told)
    size = sum(len(family.samples) for family in families_of.values())
    assert size < 2000, "a scrape has too many series"
    [slow] = families_of["spillway_space_slow_from_ratio"].samples
    assert slow.value == settings.space.slow_from


def test_rules_and_dashboard_name_only_metrics_that_exist(
    gateway: tuple[Gateway, str, Settings],
) -> None:
    _site, text, _settings = gateway
    exist = set(_METRIC.findall(re.sub(r"\{[^}]*\}", "", text)))
    dashboard = (MONITORING / "dashboard.json").read_text()
    board: dict[str, Any] = json.loads(dashboard)
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    named = set(_METRIC.findall(" ".join(expressions)))
    named |= set(_METRIC.findall((MONITORING / "alerts.yml").read_text()))
    assert len(named) > 30 and named <= exist, sorted(named - exist)
    # PromQL of the dashboard is checked as rules are.
    rules = [
        {"record": f"panel:{at}", "expr": expression.replace("$__rate_interval", "5m")}
        for at, expression in enumerate(expressions)
    ]
    promtool(
        "check", "rules", "/dev/stdin", text=json.dumps({"groups": [{"name": "d", "rules": rules}]})
    )


def test_each_alert_is_raised_by_what_it_is_about() -> None:
    promtool("check", "rules", "alerts.yml")
    promtool("test", "rules", "alerts_test.yml")
    alerts = set(re.findall(r"- alert: (\w+)", (MONITORING / "alerts.yml").read_text()))
    tested = set(re.findall(r'alertname="(\w+)"', (MONITORING / "alerts_test.yml").read_text()))
    assert alerts == tested


def test_each_alert_and_each_series_of_the_dashboard_names_its_gateway() -> None:
    summaries = re.findall(r"summary: (.*)", (MONITORING / "alerts.yml").read_text())
    assert all("{{ $labels.instance }}" in summary for summary in summaries)
    board: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
    targets = [target for panel in board["panels"] for target in panel["targets"]]
    assert all("{{instance}}" in target["legendFormat"] for target in targets)
    for target in targets:
        assert "sum(" not in target["expr"]
        assert all(
            by.startswith("instance") for by in re.findall(r"sum by \(([^)]*)", target["expr"])
        )


def test_what_ends_is_told_before_it_does(tmp_path: Path) -> None:
    with admin_site(tmp_path, None) as site:

        def told() -> dict[tuple[str, tuple[str, ...]], float]:
            url = str(site.http.base_url.join("/metrics"))
            answer = site.http.get(url, headers={"Authorization": f"Bearer {forever}"})
            return values(answer.text)

        forever = site.token(Role.VIEWER)
        name = "spillway_token_expires_timestamp_seconds", ()
        later_ns = clock.now_ns() + 3600 * clock.NS
        site.token(Role.VIEWER, later_ns - clock.NS)  # it is not used
        assert name not in told()
        for ends_ns in (later_ns + clock.NS, later_ns):
            used = {"Authorization": f"Bearer {site.token(Role.VIEWER, ends_ns)}"}
            assert site.http.get("session", headers=used).status_code == 200
        assert told()[name] == pytest.approx(later_ns / clock.NS)
        assert ("spillway_certificate_expires_timestamp_seconds", ()) not in told()
        admin = replace(site.settings.admin, tls="self-signed")
        tls = replace(site.settings, admin=admin)
        Certificate(tls)
        left = (certificate_end_ns(tls) or 0) - clock.now_ns()
        assert timedelta(days=824) < timedelta(seconds=left / clock.NS) < VALID


def test_the_documents_say_of_each_alert_what_to_do() -> None:
    alerts = re.findall(r"- alert: (\w+)", (MONITORING / "alerts.yml").read_text())
    text = (MONITORING.parent / "tasks/monitoring.md").read_text()
    [section] = re.findall(r"^## What each alarm wants\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    rows = [row for row in section.splitlines() if row.startswith("|")]
    named = set(re.findall(r"\bSpillway[A-Z]\w+", " ".join(row.split(" | ")[0] for row in rows)))
    assert len(alerts) > 10 and named == set(alerts)


def test_runs_have_a_bounded_number_of_labels() -> None:
    at_risk = [Run(f"r{number}", None, None, number, 1, None, None) for number in range(99)]
    catalogue = CatalogueStatus(True, 99, {}, at_risk, 0, None)
    labelled = [
        sample.labels["run"]
        for family in metrics._runs(catalogue)
        for sample in family.samples
        if family.name == "spillway_run_rpo_seconds"
    ]
    assert labelled == [f"r{number}" for number in range(98, 78, -1)]


def test_samples_have_rates_and_a_restart_is_no_burst(
    gateway: tuple[Gateway, str, Settings],
) -> None:
    site, _text, settings = gateway
    opened = open_gateway(settings)
    store = opened.store
    sampler = Sampler(settings, store, lambda: status.gather_quickly(settings, opened.database))
    sampler.take()
    save(settings, "two.pt")

    def sent() -> int:
        report = datadir.read(settings, datadir.DRAIN)
        return report["counters"]["bytes"] if report and datadir.alive(report) else -1

    until(lambda: sent() >= 200_000, "the report of the drain")
    sampler.take()
    site.kill("drain")
    until(lambda: 0 <= sent() < 200_000, "the report of the next drain")
    sampler.take()
    with store.reading() as session:
        rows = session.all(SAMPLES)[-3:]
    first, second, third = (Sample(*row) for row in rows)
    store.close()
    assert (first.written_bytes_per_second, first.sent_bytes_per_second) == (None, None)
    assert second.written_bytes_per_second and second.sent_bytes_per_second
    assert third.written_bytes_per_second == 0 and third.sent_bytes_per_second is None
    assert second.disk_size_bytes and second.rpo_seconds is not None


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminSite]:
    with admin_site(tmp_path_factory.mktemp("admin"), principal=None) as made:
        yield made


def test_metrics_need_a_token_unless_a_person_says_otherwise(site: AdminSite) -> None:
    url = f"{site.http.base_url}".removesuffix("/api/v1/") + "/metrics"
    assert httpx.get(url).status_code == 401
    token = site.token(Role.VIEWER)
    response = httpx.get(url, headers={"Authorization": f"Bearer {token}"})
    assert response.status_code == 200
    # The NFS server does not run: what it counts is missing.
    assert "spillway_nfs" not in response.text
    promtool("check", "metrics", text=response.text)


def test_history_has_steps_and_gaps(site: AdminSite) -> None:
    with site.gateway.store.writing() as session:
        token = create(session, "v", Role.VIEWER, None, "tests")[1]
        for minute in (0, 1, 2, 3, 10, 11):  # the gateway did not run from 4 to 9
            rate = None if minute == 2 else 100.0 * minute
            put(session, Sample(minute * MINUTE_NS, 10 * minute, rate, rate))
        # The clock was a century ahead for a moment.
        put(session, Sample(100 * 365 * 1440 * MINUTE_NS, 1, 1.0, 1.0))
    headers = {"Authorization": f"Bearer {token}"}

    def ask(status: int = 200, **params: Any) -> Any:
        asked = {"from": "1970-01-01T00:00:00Z", "to": "1970-01-01T00:12:00Z", **params}
        answer = site.http.get("history", params=asked, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.json()

    found = ask(step=120)
    wanted = ["time", "dirty_bytes", "written_bytes_per_second"]
    assert found["columns"][:3] == wanted and len(found["columns"]) == len(found["rows"][0])
    assert [row[:3] for row in found["rows"]] == [
        ["1970-01-01T00:00:00.000000000Z", 10, 50],
        ["1970-01-01T00:02:00.000000000Z", 30, 300],
        ["1970-01-01T00:10:00.000000000Z", 110, 1050],
    ]
    assert [row[2] for row in ask()["rows"]] == [0, 100, None, 300, 1000, 1100]
    assert ask(200, **{"from": "1970-01-01T00:09:00Z"})["rows"][0][0] == found["rows"][2][0]
    assert "step" in ask(422, to="1975-01-01T00:00:00Z")["detail"]
    assert "not before" in ask(422, to="1969-01-01T00:00:00Z")["detail"]
    ask(422, step=1)
    recent = site.http.get("history", headers=headers).json()
    assert recent["rows"] == []


def test_files_leave_the_disk_and_come_back_through_the_api(
    gateway: tuple[Gateway, str, Settings],
) -> None:
    site, _text, settings = gateway
    save(settings, "three.pt")
    site.until_drained()
    opened = open_gateway(settings)
    with opened.store.writing() as session:
        token = create(session, "o", Role.OPERATOR, None, "tests")[1]
    opened.store.close()
    http = httpx.Client(
        base_url=f"http://127.0.0.1:{settings.admin.port}/api/v1",
        headers={"Authorization": f"Bearer {token}"},
        timeout=30,
    )

    def job(what: str) -> dict[str, Any]:
        answer = http.post(f"files/{what}", json={"paths": ["three.pt"]})
        assert answer.status_code == 202, answer.text
        id = answer.json()["id"]
        until(lambda: http.get(f"jobs/{id}").json()["state"] == "done", f"the end of {what}")
        result: dict[str, Any] = http.get(f"jobs/{id}").json()["result"]
        return result

    def place() -> Any:
        return http.get("files", params={"path": "three.pt"}).json()["bytes"]

    with http:
        # Block digests come a moment after the upload.
        until(lambda: job("evict")["evicted_files"] == 1 or place() == "absent", "the eviction")
        assert place() == "absent"
        assert job("warm")["left_files"] == 0
        assert place() == "resident"
        # A change of names goes through the server: clients see it at once.
        moved = http.post("files/rename", json={"path": "three.pt", "to": "four.pt"})
        assert moved.status_code == 200, moved.text
        with nfs4.Client(settings.nfs.port) as client:
            root = client.handle(settings.nfs.export.strip("/"))
            assert "four.pt" in client.names(root) and "three.pt" not in client.names(root)
        until(lambda: http.get("status").json()["bucket"]["reachable"], "the bucket's answer")
        assert http.delete("files", params={"path": "four.pt"}).status_code == 403
