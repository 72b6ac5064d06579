"""How the command line reaches a gateway: what goes past the proxies of the environment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.cli.main import main
from tests.support.forwardproxy import ForwardProxy
from tests.support.t10.afar import Afar, afar


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Afar]:
    """A gateway of this machine."""
    with afar(tmp_path) as found:
        yield found


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_no_proxy_gets_the_token_of_a_call_to_this_machine(
    here: Afar, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    with ForwardProxy() as proxy:
        monkeypatch.setenv(variable, proxy.url)
        assert main([*here.options(), "token", "whoami"]) == 0
    assert proxy.asked == []
