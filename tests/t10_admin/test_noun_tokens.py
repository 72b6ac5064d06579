"""The tokens and jobs of a gateway, asked on its machine and by its admin API."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from admin_api.access.principal import Role
from admin_api.access.tokens import made as prepare
from admin_api.jobs import rows
from gateway.cli.main import main
from gateway.common import clock
from gateway.common.errors import NotPossible, NotThere, UserError
from gateway.common.models import to_json
from gateway.service.gateway import Gateway
from tests.support.t10.afar import Afar, afar
from tests.support.t10.either import WAYS, either

RUNNING, DONE = "0123456789abcdef", "fedcba9876543210"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Afar]:
    with afar(tmp_path_factory.mktemp("tokens")) as made:
        row = rows.JobRow(
            *(RUNNING, "warm", '{"paths": ["d"]}', rows.RUNNING, 1, 2, "1 file", "mara", "t", "r"),
            *(1, 1, None, 0, None, None),
        )
        ended = row._replace(
            id=DONE, kind="evict", state=rows.DONE, created_ns=2, ended_ns=3, result="{}"
        )
        with made.site.gateway.store.writing() as session:
            for job_row in (row, ended):
                session.run(rows.INSERT, **job_row._asdict())
        yield made


@pytest.fixture(params=WAYS)
def gateway(site: Afar, request: pytest.FixtureRequest) -> Iterator[Gateway]:
    with either(site, request.param) as made:
        yield made


def test_tokens_are_made_listed_and_revoked(site: Afar, gateway: Gateway) -> None:
    tokens = gateway.tokens
    made = tokens.create("x", "viewer", 60)
    assert made.secret.startswith(f"spw_{made.token.id}_")
    assert (made.token.role, made.token.state) == ("viewer", "valid")
    assert made.token.expires_ns is not None
    assert 0 < made.token.expires_ns - made.token.created_ns <= 60 * clock.NS
    assert tokens.create("y", "operator", None).token.expires_ns is None
    assert made.token in list(tokens.every())
    ended = tokens.revoke(made.token.id)
    assert (ended.id, ended.state) == (made.token.id, "revoked") and ended.revoked_ns is not None
    for wrong in ("none", "a/b", ""):
        with pytest.raises(NotThere, match=f"there is no token {wrong}"):
            tokens.revoke(wrong)
    read = site.ask("GET", f"tokens/{ended.id}")
    assert ended.revoked_ns is not None
    assert read == to_json(ended)


def test_only_the_machine_adds_a_token_and_only_a_token_has_an_owner(site: Afar) -> None:
    row, _text = prepare("boot", Role.ADMIN, None, "tests")
    with either(site, "here") as here, either(site, "afar", "viewer") as far:
        assert [here.tokens.add("boot", row.id, row.hash).changed for _ in range(2)] == [
            True,
            False,
        ]
        with pytest.raises(UserError, match="token add runs on the gateway only"):
            far.tokens.add("boot", row.id, row.hash)
        with pytest.raises(UserError, match="uses no token: spillway --gateway"):
            here.tokens.whoami()
        assert (far.tokens.whoami().name, far.tokens.whoami().role) == ("viewer", "viewer")


def test_jobs_are_listed_and_shown(gateway: Gateway) -> None:
    jobs = gateway.jobs
    newest = [DONE, RUNNING]
    assert [job.id for job in jobs.every(5)] == newest
    assert [job.id for job in jobs.every(1)] == newest[:1]
    assert [job.id for job in jobs.every(5, "running")] == [RUNNING]
    assert [job.id for job in jobs.every(5, None, "evict")] == [DONE]
    assert list(jobs.every(0)) == list(jobs.every(5, "failed")) == []
    assert jobs.get(RUNNING).arguments == {"paths": ["d"]}
    for wrong in ("0" * 16, "none", "a/b"):
        with pytest.raises(NotThere, match=f"there is no job {wrong}: spillway job list"):
            jobs.get(wrong)


def test_the_admin_api_ends_a_job(site: Afar, capsys: pytest.CaptureFixture[str]) -> None:
    with either(site, "here") as here, either(site, "afar") as far:
        with pytest.raises(UserError, match=f"by the admin API that runs it.* cancel {RUNNING}"):
            here.jobs.cancel(RUNNING)
        with pytest.raises(NotPossible, match="the job has ended: done"):
            far.jobs.cancel(DONE)
        with pytest.raises(NotThere, match="there is no job none"):
            far.jobs.cancel("none")
        assert far.jobs.cancel(RUNNING).cancel_asked
    capsys.readouterr()
    assert main([*site.options(), "job", "show", DONE, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "done"
