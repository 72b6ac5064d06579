"""The processes of a gateway, each by itself, without ``spillway up``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.config.settings import Settings
from tests.support.s3server import die_with_parent


@contextmanager
def process(
    name: str, settings: Settings, output: Path, **environ: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process until the end of the block, where it is killed.

    Args:
        name: module of gateway.processes: drain, cache, checkpoints or recovery.
        settings: settings that are written in their file.
        output: file to which its output is appended.
        environ: variables beside those of this process.
    """
    command = [sys.executable, "-m", f"gateway.processes.{name}", "--config", str(settings.source)]
    with output.open("ab") as file:
        started = subprocess.Popen(
            command,
            stdout=file,
            stderr=file,
            preexec_fn=die_with_parent,
            env={**os.environ, **environ},
        )
    try:
        yield started
    finally:
        started.kill()
        started.wait()
