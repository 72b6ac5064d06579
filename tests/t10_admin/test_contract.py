"""The whole API against its own description: schemathesis asks a running gateway.

Everything is real: the application in its process, the databases, the NFS server and the bucket.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from admin_api.access.principal import Role
from admin_api.access.tokens import create
from admin_api.requests import open_gateway
from tests.support import nfs4
from tests.support.checkpoints.layouts import safetensors, tensors
from tests.support.gateway import Gateway, Values, running
from tests.support.ports import free_port
from tests.support.t10 import asking
from tests.support.waiting import until

EXAMPLES = int(os.environ.get("SPILLWAY_CONTRACT_EXAMPLES", "4"))
"""Random requests for each operation, beside those that are made of its limits."""
SEED = 1723
STEP = "/checkpoints/jobs/llama-7b/step-1200"
POLICY, EXPORT, COPY = "newest-three", "jobs-only", "release"
PATHS = (STEP, f"{STEP}/model.pt", "/checkpoints/jobs", "/checkpoints/absent")


class Asked(NamedTuple):
    """A running gateway, and a client with the role admin."""

    http: httpx.Client
    gateway: Gateway


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """A gateway that has checkpoints, a policy, a pin, a promotion and an export."""
    port = free_port()
    directory = tmp_path_factory.mktemp("contract")
    values: Values = {
        "gateway": {"log_format": "json"},
        "admin": {"enabled": True, "port": port},
        "checkpoints": {"rule": [{"name": "pairs", "path": "jobs/*/step-{step}", "files": 2}]},
        "drain": {"settle_seconds": 0.1},
    }
    with running(directory, values) as gateway:
        settings = gateway.settings
        opened = open_gateway(settings)
        with opened.store.writing() as session:
            token = create(session, "schemathesis", Role.ADMIN, None, "tests")[1]
        opened.store.close()
        gateway.until_said("listening on http", 1)
        headers = {"Authorization": f"Bearer {token}"}
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=f"{url}/api/v1", headers=headers, timeout=60) as client:
            fill(client, settings.nfs.port)
            yield Asked(client, gateway)


def fill(http: httpx.Client, port: int) -> None:
    """Make what questions can be about."""
    for step in (STEP, f"{STEP}1", f"{STEP}2"):
        made = http.post("directories", json={"path": step, "parents": True})
        assert made.status_code == 201, made.text
        with nfs4.Client(port) as client:
            top = client.handle(*step.strip("/").split("/"))
            for name in ("model.safetensors", "model.pt"):
                with client.opened(top, name) as file:
                    file.write(safetensors() if name.endswith("safetensors") else tensors())
    policy = {"name": POLICY, "run": "jobs/*", "keep_newest": 3}
    assert http.post("policies", json=policy).status_code == 201
    assert http.post("pins", json={"path": STEP, "note": "kept"}).status_code == 201
    export = {"name": f"/{EXPORT}", "path": "/checkpoints/jobs", "clients": ["127.0.0.0/8 ro"]}
    assert http.post("exports", json=export).status_code == 201
    assert http.put("queue/orders", json={"path": STEP, "order": "bump"}).status_code == 200
    assert http.post("files/evict", json={"paths": [STEP]}).status_code == 202
    # A deletion is refused while the checkpoint has changed since the catalogue looked at it.
    until(lambda: len(_written(http)) == 3, "the catalogue")
    promotion = {"path": STEP, "name": COPY}
    until(lambda: http.post("promotions", json=promotion).status_code == 201, "the promotion")
    last = http.get("checkpoints", params={"sort": "-run"}).json()["items"][0]["ino"]
    gone = http.delete(f"checkpoints/{last}", params={"force": True})
    assert gone.status_code == 200, gone.text


def _written(http: httpx.Client) -> list[Any]:
    """Return the checkpoints that the catalogue knows whole."""
    items = http.get("checkpoints").json()["items"]
    return [item for item in items if item["state"] in ("complete", "durable")]


def known(http: httpx.Client) -> dict[str, list[Any]]:
    """Return values of parameters that exist, by where they are asked for."""
    listed = {
        name: http.get(name).json()["items"] for name in ("checkpoints", "pins", "jobs", "trash")
    }
    inos = [entry["ino"] for name in ("checkpoints", "pins") for entry in listed[name]]
    spare = http.post("tokens", json={"name": "spare", "role": "viewer"}).json()["token"]["id"]
    return {
        "path.ino": inos,
        "path.id": [entry["id"] for name in ("jobs", "trash") for entry in listed[name]],
        "path.token_id": [spare],
        "header.if-match": ['"1"', '"2"', "*"],
        "path.name": [POLICY, EXPORT, COPY],
        "query.path": list(PATHS),
        "query.run": ["jobs/llama-7b"],
        "body.path": list(PATHS),
        "body.to": list(PATHS),
        "body.paths[*]": list(PATHS),
    }


SETTLED = f"""
seed = {SEED}
hooks = {json.dumps(asking.__file__)}
continue-on-failure = true
request-timeout = 60  # the machine of the tests is busy
max-stream-events = 2
[generation]
max-examples = {EXAMPLES}
database = "none"
with-security-parameters = false
[phases.stateful]
enabled = false
[checks]
ignored_auth.enabled = false  # test_access.py asks each route without a token
positive_data_acceptance.enabled = false  # what is well-formed may be refused
negative_data_rejection.expected-statuses = ["4xx"]
[[operations]]
include-path = "/api/v1/bucket/setup"
# This S3 server has no lifecycle rules.
checks.not_a_server_error.expected-statuses = ["2xx", "4xx", 502]
[[operations]]
include-path = ["/api/v1/trash/empty", "/api/v1/exports/validate", "/api/v1/exports/reload"]
# With another method the last word is an id or a name.
checks.unsupported_method.enabled = false
checks.allow_header_conformance.enabled = false
[[operations]]
include-path = "/api/v1/tokens/{{token_id}}"
# It finds out the id of the token that it sends, and would revoke it.
phases.examples.extra-data-sources.responses = false
phases.coverage.extra-data-sources.responses = false
phases.fuzzing.extra-data-sources.responses = false
"""


def configuration(http: httpx.Client) -> str:
    """Return the configuration of schemathesis: TOML, in which lists are as in JSON."""
    bound, dictionaries = ["[parameters]"], []
    for number, (place, values) in enumerate(known(http).items()):
        bound.append(f'"{place}" = {{dictionary = "{number}", probability = 0.7}}')
        dictionaries.append(f"[dictionaries.{number}]\nvalues = {json.dumps(values)}")
    return "\n".join([SETTLED, *bound, *dictionaries])


def test_lines_are_json_and_have_the_id_of_their_request(asked: Asked) -> None:
    http = asked.http
    place = f"{STEP}1/model.pt"
    answers = {
        "rename": http.post("files/rename", json={"path": place, "to": f"{place}2"}),
        "evict": http.post("files/evict", json={"paths": [place + "2"]}),
        "refused": http.post("files/rename", json={"path": place, "to": f"{place}2"}),
    }
    assert [response.status_code for response in answers.values()] == [200, 202, 404]
    ids = {name: response.headers["x-request-id"] for name, response in answers.items()}
    assert answers["refused"].json()["instance"] == ids["refused"]
    job = answers["evict"].json()
    assert job["request_id"] == ids["evict"]

    def lines(name: str) -> list[dict[str, Any]]:
        every = map(json.loads, asked.gateway.lines)
        return [line for line in every if line.get("request_id") == ids[name]]

    ends = ("done", "failed")
    until(lambda: any(line.get("state") in ends for line in lines("evict")), "the end of the job")
    [rpc, request] = lines("rename")
    assert (rpc["rpc"], rpc["refused"], rpc["process"]) == ("rename", 0, "admin")
    assert (request["path"], request["status"]) == ("/api/v1/files/rename", 200)
    assert {line.get("job") for line in lines("evict")} == {None, job["id"]}
    with closing(sqlite3.connect(asked.gateway.data_dir / "admin.db")) as store:
        rows = store.execute("SELECT status FROM audit WHERE request_id = ?", (ids["refused"],))
        assert rows.fetchall() == [(404,)]


@pytest.mark.timeout(7200)
def test_the_api_is_as_it_is_described(asked: Asked, tmp_path: Path) -> None:
    http = asked.http
    (tmp_path / "schemathesis.toml").write_text(configuration(http))
    done = subprocess.run(
        [
            *(str(Path(sys.executable).parent / "st"), "run"),
            str(http.base_url.join("openapi.json")),
            *("--header", f"Authorization: {http.headers['authorization']}", "--no-color"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5000:]
    assert http.get("health/ready").status_code == 200
