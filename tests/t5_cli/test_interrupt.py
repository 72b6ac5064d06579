"""Ctrl-C at a moment at which Python drops exceptions."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from gateway.cli.main import EXIT_INTERRUPTED, main
from gateway.namespace.lookup import Browser, NamedInode
from tests.support.clisite import Site

pytestmark = pytest.mark.usefixtures("control_socket_of_namespace")


class Interrupted:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_in_a_destructor_is_not_lost(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = ["--config", str(site.config)]
    find = Browser.entry

    def interrupted(*args: Any) -> NamedInode | None:
        Interrupted()
        return find(*args)

    assert main(["mkdir", *config, "d"]) == 0
    with monkeypatch.context() as context:
        context.setattr(Browser, "entry", interrupted)
        assert main(["rm", *config, "-r", "d"]) == EXIT_INTERRUPTED
    assert main(["ls", *config]) == 0
    assert capsys.readouterr() == ("d\n", "")
