"""The help of the commands: examples that can be parsed, a reference that is current."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from gateway.cli.examples import EXAMPLES, Example
from gateway.cli.main import RENAMED, SUBCOMMANDS, main, program_parser
from gateway.cli.reference import reference
from tests.support.checkout import ROOT


def test_each_command_has_examples() -> None:
    assert {command.name for command in SUBCOMMANDS} == set(EXAMPLES)


@pytest.mark.parametrize(
    ("name", "example"),
    [(name, example) for name, examples in EXAMPLES.items() for example in examples],
    ids=lambda value: value.line if isinstance(value, Example) else value,
)
def test_examples_can_be_parsed(name: str, example: Example) -> None:
    words = shlex.split(example.line.partition(" > ")[0])
    args, unknown = program_parser().parse_known_args(words)
    assert (args.subcommand.name, unknown) == (name, [])
    assert callable(args.subcommand.run or args.subcommand.act)
    assert example.does.endswith(".")


def test_help_shows_the_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["queue", "--help"])
    assert "  spillway queue hold /checkpoints/scratch\n" in capsys.readouterr().out


def test_the_reference_is_current() -> None:
    """If this fails: build/venv/bin/python -m gateway.cli.reference > docs/reference/cli.md."""
    assert (ROOT / "docs/reference/cli.md").read_text() == reference()


def test_a_shell_completes_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    asked = f"{script}\nCOMP_WORDS=(spillway che); COMP_CWORD=1; _shtab_spillway\n"
    done = subprocess.run(
        ["bash", "-c", asked + 'echo "${COMPREPLY[@]}"'], capture_output=True, text=True
    )
    assert (done.stdout.split(), done.stderr) == (["checkpoint"], "")


@pytest.mark.parametrize(
    ("given", "new"),
    [
        *((name, " ".join(words)) for name, words in RENAMED.items()),
        ("checkpoint", "checkpoint show"),
    ],
)
def test_an_earlier_name_works_and_is_told(
    given: str, new: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Scripts of the release before must not break, and must learn what to change."""
    where = ["--config", str(tmp_path / "none.toml")]
    for words in ([given, *where, "x"], [given, "x", *where]):
        assert main(words) == 2
        told, error = capsys.readouterr().err.splitlines()
        assert told == (
            f"spillway: {given} is spillway {new} now: the earlier name ends with the next release"
        )
        assert error.startswith("spillway: ")


def test_names_of_today_are_told_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    where = ["--config", str(tmp_path / "none.toml")]
    for words in (["checkpoint", *where, "show", "list"], ["trash", "release", "pin", *where]):
        assert main(words) == 2
        [error] = capsys.readouterr().err.splitlines()
        assert "none.toml" in error
