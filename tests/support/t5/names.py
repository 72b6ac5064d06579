"""Runner of commands in the process of the test, for tests of commands that change names."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout

from gateway.cli.main import main
from tests.support.clisite import Site


def run(site: Site, command: str, *args: str, status: int = 0) -> str:
    """Run a command to its end, in this process; what it printed, errors after the rest."""
    output = []
    with (
        io.TextIOWrapper(io.BytesIO(), "utf-8") as out,
        io.TextIOWrapper(io.BytesIO(), "utf-8") as err,
    ):
        with redirect_stdout(out), redirect_stderr(err):
            ended = main([command, "--config", str(site.config), *args])
        for stream in (out, err):
            stream.seek(0)
            output.append(stream.read())
    assert ended == status, "".join(output)
    return "".join(output)
