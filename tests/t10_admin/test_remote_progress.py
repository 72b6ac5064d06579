"""How far a job of a gateway is, as the command line shows it to people and to scripts."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout

import pytest

from gateway.cli import api, output
from gateway.cli.main import main
from gateway.common.process import start_ticks
from tests.support.checkpoints import keeping
from tests.support.checkpoints.keeping import save
from tests.support.t10.afar import Afar, afar
from tests.support.waiting import meanwhile, until

FILES = ("first", "second")
SIZE = 1 << 20
NOTHING_YET = f"[{' ' * output.BAR}]   0 %  0 B of 10 B"


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Afar]:
    with afar(tmp_path_factory.mktemp("progress")) as made:
        with made.world() as world:
            for step in range(1, 5):
                save(world, f"run/step-{step}", durable=False)
            for name in FILES:
                world.write(f"d/{name}", SIZE * b"1")
                world.drain(f"d/{name}")
            for number in range(40):
                world.write(f"tree/{number}", b"1")
        yield made


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a short job be shown too."""
    monkeypatch.setattr(api, "QUIET_SECONDS", 0.0)


def drained(gateway: Afar, step: int, shown: io.StringIO) -> Callable[[], None]:
    """Return a function that drains a checkpoint as soon as it is shown that it is waited for."""

    def work() -> None:
        until(lambda: NOTHING_YET in shown.getvalue(), "the bar")
        with gateway.world() as world:
            for name in keeping.FILES:
                world.drain(f"run/step-{step}/{name}")

    return work


def test_a_job_of_bytes_has_a_bar_with_rate_and_time(gateway: Afar) -> None:
    with gateway.world() as world:
        for name in FILES:
            world.evict(f"d/{name}")
    # This process is the hydrator.
    me = {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid()), "time_ns": 1}
    report = gateway.site.settings.run_dir / "cache.json"
    report.write_text(json.dumps(me))
    terminal = Terminal()

    def arrive() -> None:
        try:
            arrive_in_turn()
        finally:
            report.unlink()  # nothing waits for a hydrator that has ended

    def arrive_in_turn() -> None:
        for name, share in zip(FILES, ("   0 %", "  50 %"), strict=True):
            until(lambda share=share: f"]{share}" in terminal.getvalue(), "the bar")  # type: ignore[misc]
            with gateway.world() as world:
                world.arrive(f"d/{name}", SIZE * b"1")

    with redirect_stdout(terminal), meanwhile(arrive):
        assert main([*gateway.options(), "warm", "--wait", "d"]) == 0
    *lines, result = terminal.getvalue().split("\r")
    begun = r"\[ {24}\]   0 %  0 B of 2\.0 MiB, 0 B/s; 2 of 2 files"
    assert any(re.match(begun, line) for line in lines)
    assert any(line.startswith("[############            ]  50 %  1.0 MiB of") for line in lines)
    assert re.fullmatch(r"fetched: 2 files, 2\.0 MiB in .*\n", result)


@pytest.mark.parametrize(("step", "is_far"), [(1, True), (2, False)])
def test_a_wait_shows_what_is_missing(gateway: Afar, step: int, is_far: bool) -> None:
    terminal = Terminal()
    words = ["wait", "--durable", "--timeout", "60", f"run/step-{step}"]
    where = ["--config", str(gateway.site.settings.source)]
    argv = [*gateway.options(), *words] if is_far else [words[0], *where, *words[1:]]
    with redirect_stdout(terminal), meanwhile(drained(gateway, step, terminal)):
        assert main(argv) == 0
    *lines, result = terminal.getvalue().split("\r")
    assert any(line.startswith(f"{NOTHING_YET}, 0 B/s; 2 files, 10 B") for line in lines)
    assert result == "", "the line is taken away at the end"


def test_without_a_terminal_there_is_only_the_result(
    gateway: Afar, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "LINE_SECONDS", 0.0)
    assert main([*gateway.options(), "rm", "-r", "tree"]) == 0
    out, err = capsys.readouterr()
    assert out == "tree: 41 names removed\n"
    assert re.fullmatch(r"((waits for its turn|[0-9]+ names removed)\n)*", err)
    told = io.StringIO()
    with redirect_stderr(told), meanwhile(drained(gateway, 3, told)):
        words = ["wait", "--durable", "--timeout", "60", "run/step-3"]
        assert main([*gateway.options(), *words]) == 0
    assert capsys.readouterr().out == ""
    assert "\r" not in told.getvalue()


def test_why_it_is_late_is_told(gateway: Afar, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*gateway.options(), "wait", "--durable", "run/step-4", "--timeout", "4"]
    why = "run/step-4 is not durable after 4 s: 2 files, 10 B; /checkpoints/run/step-4/"
    assert main(words) == 1
    out, err = capsys.readouterr()
    assert (out, err[:10]) == ("", "spillway: ")
    assert why in err
    assert main([*words, "--json"]) == 1
    out, err = capsys.readouterr()
    assert (why in json.loads(out)["error"], err) == (True, "")
