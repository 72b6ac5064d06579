"""Results of `spillway status`: facts, and the lines that a person sees."""

from __future__ import annotations

import json
from typing import Any

from gateway.cli import status as status_module
from gateway.common.models import from_json
from gateway.service.status import Status
from tests.support.clisite import Site, spillway


def status(site: Site) -> tuple[int, dict[str, Any], list[tuple[str, str]]]:
    """Return the exit status, the facts, and the lines that a person sees."""
    result = spillway("status", "--config", site.config, "--json")
    assert result.stderr == ""
    facts = json.loads(result.stdout)
    lines = lines_of(facts)
    # Whatever needs attention, the cause and what to do are told.
    assert facts["healthy"] == all(label != "why" for label, _text in lines), lines
    return result.returncode, facts, lines


def lines_of(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the lines that a person sees. Args: facts, as the command prints them."""
    return list(status_module.lines(from_json(Status, facts)))
