"""The admin API of a running gateway: an order ends an upload, and jobs outlive the process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from tests.support import nfs4
from tests.support.gateway import Gateway, running
from tests.support.ports import free_port
from tests.support.s3proxy import Act
from tests.support.waiting import until

MIB = 1024 * 1024
PARTS = 4
"""Those of one file that the drain sends at a time."""


class Governing(NamedTuple):
    """A running gateway, and a client with the role admin."""

    gateway: Gateway
    http: httpx.Client

    def write(self, name: str, size_bytes: int) -> str:
        """Write a file that is a hole but for its last byte. Returns its path."""
        with (
            nfs4.Client(self.gateway.port) as client,
            client.opened(client.handle("checkpoints"), name) as file,
        ):
            file.write(b"x", size_bytes - 1)
        return f"/checkpoints/{name}"

    def waits(self, path: str) -> str | None:
        """Return the state of a file in the queue."""
        waiting = self.http.get("files", params={"path": path}).json()["waiting"]
        return None if waiting is None else str(waiting["state"])

    def order(self, path: str, order: str) -> None:
        answer = self.http.put("queue/orders", json={"path": path, "order": order})
        assert answer.status_code == 200, answer.text

    def release(self, path: str) -> None:
        assert self.http.delete("queue/orders", params={"path": path}).status_code == 204

    def job(self, id: str) -> Any:
        return self.http.get(f"jobs/{id}").json()


@pytest.fixture(scope="module")
def governing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Governing]:
    port = free_port()
    values: dict[str, dict[str, Any]] = {
        "admin": {"enabled": True, "port": port},
        "drain": {
            "settle_seconds": 0.1,
            "poll_seconds": 0.2,
            "part_bytes": 5 * MIB,
            "part_concurrency": PARTS,
        },
    }
    with running(tmp_path_factory.mktemp("running"), values) as gateway:
        gateway.until_said("listening on http", 1)
        token = gateway.spillway("token", "create", "--role", "admin").stdout.strip()
        headers = {"Authorization": f"Bearer {token}"}
        url = f"http://127.0.0.1:{port}/api/v1"
        with httpx.Client(base_url=url, headers=headers, timeout=60) as http:
            yield Governing(gateway, http)


def test_an_upload_that_is_cancelled_ends_and_its_file_is_held(governing: Governing) -> None:
    gateway = governing.gateway
    first = gateway.proxy.inject(lambda r: r.operation == "PART", Act.HOLD, times=PARTS)
    path = governing.write("cancelled", 29 * MIB)
    first.wait()
    assert governing.waits(path) == "uploading"
    governing.order(path, "hold")
    first.release()
    until(lambda: gateway.proxy.operations("ABORT"), "the upload is aborted")
    sent = {int(request.query["partNumber"]) for request in gateway.proxy.operations("PART")}
    assert sent == set(range(1, PARTS + 1)), "no further part is sent"
    assert gateway.proxy.operations("COMPLETE") == []
    assert "cancelled" not in gateway.objects()
    assert governing.waits(path) == "held"
    governing.release(path)
    until(lambda: "cancelled" in gateway.objects(), "its object")


def test_jobs_and_samples_outlive_the_process(governing: Governing) -> None:
    """A job that waits for a file continues under its id. Each process takes a sample at once."""
    http, gateway = governing.http, governing.gateway
    governing.order("/checkpoints", "hold")
    size = 64 * MIB  # more than the other test can leave in a sample
    path = governing.write("waited-for", size)
    id = http.post("files/wait", json={"path": path}).json()["id"]
    until(lambda: governing.job(id)["state"] == "running", "the job runs")

    def largest() -> float:
        """Return the most dirty bytes of any sample of the last hour."""
        document = http.get("history").json()
        column = document["columns"].index("dirty_bytes")
        return max((row[column] for row in document["rows"]), default=-1)

    until(lambda: largest() >= 0, "the first sample")
    assert largest() < size
    gateway.kill("admin")
    gateway.until_said("listening on http", 2)
    until(lambda: largest() >= size, "a sample of the next process")
    assert governing.job(id)["state"] == "running"
    governing.release("/checkpoints")
    until(lambda: governing.job(id)["state"] == "done", "the end of the job")
    assert governing.job(id)["result"] == {"durable": True}
    assert [item["id"] for item in http.get("jobs").json()["items"]] == [id]
