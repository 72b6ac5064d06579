"""Each operation of the API is a command too: a table that a person reviews, for each new route."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import pytest

from admin_api.app import create_app
from gateway.cli.main import (
    FOR_ANY_GATEWAY,
    NEEDS_NO_GATEWAY,
    NOUNS,
    SUBCOMMANDS,
    command_parsers,
    main,
    program_parser,
)
from gateway.config import loader
from tests.support.t10.remote import ONLY_HERE

OFFERED = {
    "GET /tokens": "token list",
    "POST /tokens": "token create",
    "GET /tokens/{token_id}": "token list",
    "DELETE /tokens/{token_id}": "token revoke",
    "GET /session": "token whoami",
    "GET /audit": "audit --who --path --since --until",
    "GET /checkpoints": "checkpoint list --state --rule --text --sort",
    "GET /checkpoints/{ino}": "checkpoint show",
    "DELETE /checkpoints/{ino}": "checkpoint delete --force --reason",
    "GET /promotions": "promotion list",
    "POST /promotions": "checkpoint promote",
    "GET /promotions/{name}": "promotion list",
    "DELETE /promotions/{name}": "promotion remove --release-hold",
    "GET /trash": "trash list",
    "GET /trash/{id}": "trash list",
    "DELETE /trash/{id}": "trash empty",
    "POST /trash/empty": "trash empty --all",
    "POST /trash/{id}/undelete": "trash restore",
    "POST /trash/{id}/release": "trash release",
    "GET /runs": "checkpoint list",
    "GET /pins": "checkpoint pins",
    "POST /pins": "checkpoint pin",
    "DELETE /pins/{ino}": "checkpoint unpin",
    "GET /policies": "policy list",
    "POST /policies": "policy set",
    "GET /policies/{name}": "policy show",
    "PUT /policies/{name}": "policy set",
    "DELETE /policies/{name}": "policy remove",
    "POST /policies/{name}/enable": "policy enable",
    "POST /policies/{name}/disable": "policy disable",
    "GET /policies/{name}/versions": "policy history",
    "GET /retention/plan": "policy plan --run --fate",
    "POST /retention/plan": "policy plan --policy --run --fate",
    "POST /retention/validate": "policy validate",
    "GET /retention/approvals": "policy approvals",
    "POST /retention/approvals": "policy approve",
    "GET /retention/log": "policy log --run",
    "GET /retention/clock": "policy clock",
    "POST /retention/clock/confirm": "policy clock --confirm",
    "GET /status": "status",
    "GET /recovery": "status",
    "GET /statistics": "statistics",
    "GET /clients": "clients",
    "GET /clients/opens": "clients --open",
    "GET /usage": "usage",
    "GET /files": "stat",
    "DELETE /files": "rm",
    "POST /files/rename": "mv",
    "POST /files/attributes": "chown",
    "POST /files/evict": "evict",
    "POST /files/warm": "warm",
    "POST /files/wait": "wait",
    "GET /directories": "ls",
    "POST /directories": "mkdir",
    "DELETE /directories": "rm -r --force",
    "GET /exports": "export list",
    "POST /exports": "export set",
    "POST /exports/validate": "export validate",
    "POST /exports/reload": "export reload",
    "GET /exports/{name}": "export show",
    "PUT /exports/{name}": "export set",
    "DELETE /exports/{name}": "export remove",
    "GET /queue": "queue list",
    "GET /queue/orders": "queue list",
    "PUT /queue/orders": "queue hold",
    "DELETE /queue/orders": "queue release",
    "POST /queue/retry": "queue retry",
    "POST /bucket/test": "bucket test",
    "POST /bucket/setup": "bucket setup --apply --adopt",
    "GET /jobs": "job list --state --kind",
    "GET /jobs/{id}": "job show",
    "POST /jobs/{id}/cancel": "job cancel",
    "GET /configuration": "configuration",
    "GET /history": "history --from --to --step",
    "GET /events": "events --follow",
}
"""The command that offers each operation, with the options that only this operation needs."""
SECOND = "chmod"
"""It sends the same operation as ``chown``, with a mode."""
WITHOUT_COMMAND = {
    "GET /health/live": "a probe asks it, without a token",
    "GET /health/ready": "a probe asks it, without a token",
    "POST /login": "it opens a session of the pages: a command sends its token",
    "POST /logout": "it ends a session of the pages",
    "GET /metrics": "Prometheus reads it: status and statistics show the same to a person",
}
"""The operations that no command offers, and why."""
BY_ITSELF = {"limit", "cursor", "ino", "path", "run", "details", "removed"}
"""Parameters that a command sends by itself, or takes as an argument."""


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Return the query parameters of each operation of the API."""
    path = tmp_path_factory.mktemp("commands")
    where = ["--config", str(path / "spillway.toml"), "--data-dir", str(path / "data")]
    assert main(["init", *where, "--bucket", "b"]) == 0
    described: dict[str, dict[str, Any]] = create_app(loader.load(path / "spillway.toml")).openapi()
    return {
        f"{method.upper()} {address.removeprefix('/api/v1')}": {
            parameter["name"]
            for parameter in operation.get("parameters", ())
            if parameter["in"] == "query"
        }
        for address, methods in described["paths"].items()
        for method, operation in methods.items()
    }


def parsers_of(words: list[str]) -> Iterator[argparse.ArgumentParser]:
    """Yield the parser of a command, and then those of its verbs."""
    parser = program_parser()
    for word in words:
        verbs = command_parsers(parser)
        if not verbs:
            # The verb is one of the choices of an argument.
            assert any(word in (action.choices or ()) for action in parser._actions), word
            continue
        assert word in verbs, word
        parser = verbs[word]
        yield parser


def command_of(operation: str) -> str:
    """Return the name of the command that offers an operation."""
    noun, *verb = OFFERED[operation].split()[:2]
    return " ".join([noun, *verb]) if noun in NOUNS else noun


def test_each_operation_has_a_command(operations: dict[str, set[str]]) -> None:
    assert operations.keys() == OFFERED.keys() | WITHOUT_COMMAND.keys()
    assert not OFFERED.keys() & WITHOUT_COMMAND.keys()


@pytest.mark.parametrize("operation", OFFERED)
def test_the_command_of_an_operation_is_there_and_asks_other_gateways(
    operation: str, operations: dict[str, set[str]]
) -> None:
    words = OFFERED[operation].split()
    named = [word for word in words if not word.startswith("-")]
    options = {word for word in words if word.startswith("-")}
    assert command_of(operation) in FOR_ANY_GATEWAY
    parser = list(parsers_of(named))[-1]
    assert options <= parser._option_string_actions.keys()
    for parameter in operations[operation] - BY_ITSELF:
        assert f"--{parameter.replace('_', '-')}" in options, parameter


def test_a_command_that_is_not_there_would_be_seen() -> None:
    for line in ("frobnicate", "policy frobnicate", "queue frobnicate"):
        with pytest.raises(AssertionError, match="frobnicate"):
            list(parsers_of(line.split()))


def test_what_shows_facts_tells_programs_too() -> None:
    offered = {*map(command_of, OFFERED), SECOND}
    assert {command.name for command in SUBCOMMANDS} == offered | ONLY_HERE | NEEDS_NO_GATEWAY
    reads = [name for operation, name in OFFERED.items() if operation.startswith("GET ")]
    without = set()
    for line in reads:
        words = [word for word in line.split() if not word.startswith("-")]
        if "--json" not in list(parsers_of(words))[-1]._option_string_actions:
            without.add(" ".join(words))
    assert without <= {"policy show", "policy clock"}
