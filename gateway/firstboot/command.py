"""Runs the programs of the system that the first boot needs."""

from __future__ import annotations

import subprocess

from gateway.errors import UserError


def run(*command: str) -> str:
    """Run a program. Returns what it says. Raises UserError when it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())
        raise UserError(f"{' '.join(command)} failed: {said}")
    return done.stdout
