"""Kills processes of a gateway at random moments while its clients work."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.support.gateway import Gateway
from tests.support.postgres import PostgresServer
from tests.support.waiting import until

FIRST_SECONDS, LAST_SECONDS = 0.2, 5.0
"""The range of the delay of a kill after the first answer since the kill before."""
AT_ONCE_SHARE = 0.2
"""The share of the kills that do not wait for an answer since the kill before."""
PROGRESS_SECONDS = 120.0
DEATHS_MAX = 3
"""The deaths of children until `spillway up` is killed itself: it waits longer after each death."""


class Answers:
    """The answers in the writers' logs, which grow meanwhile."""

    def __init__(self, logs: Sequence[Path]) -> None:
        self._at = dict.fromkeys(logs, 0)
        self.acknowledged = 0
        self.failed = ""

    def read(self) -> int:
        """Read the new lines. Returns how many requests have been answered so far."""
        for log, at in self._at.items():
            with log.open("rb") as file:
                file.seek(at)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._at[log] = at + len(whole)
            for line in whole.splitlines():
                word = line.split(maxsplit=3)[2]
                self.acknowledged += word == b"ok"
                if word == b"failed":
                    self.failed = f"{log.stem}: {line.decode()}"
        return self.acknowledged


class Killer:
    """Kills the processes of one gateway.

    Args:
        postgres: its database server, if it has one.
        seed: determines the moments and the victims.
        say: called with a line for each kill.
    """

    def __init__(
        self,
        gateway: Gateway,
        postgres: PostgresServer | None,
        answers: Answers,
        seed: int,
        say: Callable[[str], None],
    ) -> None:
        self.kills: Counter[str] = Counter()
        self._gateway = gateway
        self._postgres = postgres
        self._answers = answers
        self._random = random.Random(seed)
        self._say = say
        self._deaths = 0
        self._took_database = False
        """Whether the database was killed since the last answer: ``up`` does not start then."""

    def run(self, deadline: float, kills_max: int) -> None:
        """Kill until ``deadline`` on the monotonic clock, ``kills_max`` kills, or a failed request.

        Raises AssertionError if the server does not come back.
        """
        while self.kills.total() < kills_max:
            if self._random.random() >= AT_ONCE_SHARE:
                self._until_answered()
            time.sleep(self._random.uniform(FIRST_SECONDS, LAST_SECONDS))
            if time.monotonic() >= deadline:
                break
            self._strike()
            if self._answers.failed:
                return  # the verification reports the failed request
        self._until_answered()

    def _until_answered(self) -> None:
        before = self._answers.read()

        def answered() -> bool:
            self._keep_up()
            return self._answers.read() > before or bool(self._answers.failed)

        until(answered, f"an answer after {self.kills.total()} kills", PROGRESS_SECONDS)
        self._took_database = False

    def _keep_up(self) -> None:
        """Start ``spillway up`` again if its database was killed while it started, as systemd does.

        Raises AssertionError if it ended at another moment.
        """
        if self._took_database and self._gateway.has_ended:
            self._gateway.start()
        self._gateway.require_up()

    def _strike(self) -> None:
        victims = {"ganesha": 50, "up": 25, "drain": 15, "recovery": 5}
        if self._postgres is not None:
            victims |= {"database": 25, "database and ganesha": 15}
        [victim] = self._random.choices(list(victims), list(victims.values()))
        pause_seconds = self._random.uniform(0.0, 1.0)
        if victim in ("ganesha", "drain", "recovery") and self._deaths >= DEATHS_MAX:
            victim = "up"
        self.kills[victim] += 1
        takes_database = victim.startswith("database")
        self._took_database |= takes_database
        self._say(
            f"{time.monotonic():.6f} kill -9 of {victim} (number {self.kills.total()}, "
            f"{self._answers.read()} answers)"
        )
        if victim == "up":
            self._gateway.kill_all()
            self._gateway.start()
            self._deaths = 0
        if takes_database:
            assert self._postgres is not None
            self._postgres.kill()
        if victim.endswith("ganesha"):
            self._kill_child("ganesha")
        if victim in ("drain", "recovery"):
            self._kill_child(victim)
        if takes_database:
            assert self._postgres is not None
            time.sleep(pause_seconds)
            self._postgres.start()

    def _kill_child(self, name: str) -> None:
        self._deaths += 1
        # It may have ended by itself, without its database.
        if pid := self._gateway.pid(name):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
