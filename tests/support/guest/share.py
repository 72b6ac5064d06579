"""Guest program whose processes contend for one file, and time each of their steps.

    share.py table DIRECTORY SECONDS PROCESSES
        Each process again and again takes the lock file table~ (a link of a file of its own, and a
        lock on that), writes a copy of the file table with its own line changed, renames it over
        table and removes the lock file, as mount did with /etc/mtab.
    share.py append FILE SECONDS WRITER...
        A process for each writer appends records, each under a lock of the whole file.
    share.py ask FILE SECONDS WRITER...
        The same, and a process asks every few milliseconds for a lock that another one has, and
        does not wait for it in the kernel.
    share.py records FILE
        Count the records of each writer.

The first three print a ``Report`` as JSON, and the last one a ``Records``. The first process
touches no shared file while the others work. It wakes every 100 ms, and measures what makes a step
longer and is no wait for the server: when it wakes late, the whole machine stood still.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import select
import signal
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field

TICK_SECONDS = 0.1
STILL_SECONDS = 0.25
"""How late the first process must wake for the machine to have stood still."""
SLOW_SECONDS = 1.0
"""Every step that took so long is kept with its time, and of the others the longest of a name."""
PATIENCE_SECONDS = 240.0
"""How long a process waits for a lock. The kernel may ask only every 30 s."""
LEFT_SECONDS = 30.0
"""How long a file may be left that was open when it was unlinked: the kernel removes it later."""
GRACE_SECONDS = 300.0
"""How long after the given time a process may still be at work."""
PAUSE_SECONDS = 0.02
RECORD_BYTES_MAX = 1000


@dataclass(frozen=True)
class Step:
    """Something that a process did. Times are of the monotonic clock, in seconds."""

    name: str
    began: float
    seconds: float

    @property
    def ends(self) -> float:
        return self.began + self.seconds


@dataclass
class Report:
    """What the processes did: rounds by process; what went wrong; the longest step of each name,
    and the longest without what is no wait for the server; how long, at most, the machine stood
    still."""

    rounds: dict[str, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    longest_seconds: dict[str, float] = field(default_factory=dict)
    longest_wait_seconds: dict[str, float] = field(default_factory=dict)
    stood_still_seconds: float = 0.0


@dataclass
class Records:
    """What a file of records has: how many of each writer, and what is wrong with it."""

    counts: dict[str, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


class Steps:
    """Times the steps of a process."""

    def __init__(self) -> None:
        self._slow: list[Step] = []
        self._longest: dict[str, Step] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            step = Step(name, began, time.monotonic() - began)
            if step.seconds >= SLOW_SECONDS:
                self._slow.append(step)
            elif name not in self._longest or step.seconds > self._longest[name].seconds:
                self._longest[name] = step

    def kept(self) -> list[Step]:
        return [*self._slow, *self._longest.values()]


Work = Callable[[Steps, float], int]
"""What a process does until a time of the monotonic clock. Returns the number of its rounds."""


@contextmanager
def patience() -> Iterator[None]:
    """Raise TimeoutError if the block waits longer than ``PATIENCE_SECONDS``."""

    def give_up(_signal: int, _frame: object) -> None:
        raise TimeoutError(f"no lock after {PATIENCE_SECONDS:g} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def pause() -> None:
    time.sleep(random.uniform(0, PAUSE_SECONDS))


def change_table(directory: str, name: str, steps: Steps, until: float) -> int:
    """Count up the line of a process in the table. Returns how often that was done."""
    table, lock, copy = (f"{directory}/{file}" for file in ("table", "table~", "table.copy"))
    rounds = 0
    while time.monotonic() < until:
        with steps("whole wait for the lock file"):
            held = take_lock_file(lock, f"{lock}{name}", steps)
        with steps("read"), open(table) as file:
            lines = dict(line.split() for line in file)
        rounds += 1
        lines[name] = str(rounds)
        with steps("write"), open(copy, "w") as file:
            file.writelines(f"{key} {value}\n" for key, value in lines.items())
        with steps("rename"):
            os.rename(copy, table)
        with steps("unlock"):
            os.close(held)
        with steps("unlink"):
            os.unlink(lock)
        pause()
    return rounds


def take_lock_file(lock: str, own: str, steps: Steps) -> int:
    """Wait until ``lock`` is a link of a file that we made. Returns it, open and locked."""
    with steps("create"):
        os.close(os.open(own, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    while True:
        made = True
        try:
            with steps("link"):
                os.link(own, lock)
        except FileExistsError:
            made = False
        try:
            with steps("open"):
                held = os.open(lock, os.O_WRONLY)
        except FileNotFoundError:
            if made:
                raise
            continue  # The process that had it removed it meanwhile.
        if made:
            # It is ours, also while another process that found it has it locked.
            with steps("lock of what is made"), suppress(BlockingIOError):
                fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with steps("unlink"):
                os.unlink(own)
            return held
        with steps("lock"), patience():
            fcntl.lockf(held, fcntl.LOCK_EX)
        with steps("unlock"):
            os.close(held)
        pause()


def table_errors(directory: str, rounds: dict[str, int]) -> list[str]:
    """Return what is wrong with a table after its processes ended."""
    with open(f"{directory}/table") as file:
        found = {name: int(count) for name, count in map(str.split, file)}
    errors = [] if found == rounds else [f"the table has {found}, and the processes did {rounds}"]
    deadline = time.monotonic() + LEFT_SECONDS
    while (left := sorted(os.listdir(directory))) != ["table"] and time.monotonic() < deadline:
        time.sleep(TICK_SECONDS)
    return errors if left == ["table"] else [*errors, f"the directory has {left}"]


def append(path: str, writer: str, asks: bool, steps: Steps, until: float) -> int:
    """Append records. Returns how many."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    number = 0
    while time.monotonic() < until:
        line = record(writer, number, random.randrange(RECORD_BYTES_MAX))
        with steps("lock"), patience():
            take_lock(fd, asks)
        with steps("append"):
            written = os.write(fd, line)
        assert written == len(line), f"{written} of {len(line)} bytes were written"
        number += 1
        with steps("unlock"):  # It writes back what was appended.
            fcntl.lockf(fd, fcntl.LOCK_UN)
        pause()
    with steps("close"):
        os.close(fd)
    return number


def take_lock(fd: int, asks: bool) -> None:
    if not asks:
        fcntl.lockf(fd, fcntl.LOCK_EX)
        return
    while True:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pause()
        else:
            return


def record(writer: str, number: int, filler_bytes: int) -> bytes:
    """Return a line that shows whether it is whole."""
    text = b"%s %d %s" % (writer.encode(), number, b"x" * filler_bytes)
    return b"%s %08x\n" % (text, zlib.crc32(text))


def read_records(path: str) -> Records:
    """Read all records, which must be whole and, those of each writer, in their order."""
    records = Records()
    with open(path, "rb") as file:
        for index, line in enumerate(file):
            text, _, checksum = line.rpartition(b" ")
            if checksum != b"%08x\n" % zlib.crc32(text):
                records.errors.append(f"line {index} is torn: {line[:80]!r}")
                continue
            writer, number = text.split()[0].decode(), int(text.split()[1])
            expected = records.counts.get(writer, 0)
            if number != expected:
                records.errors.append(f"line {index} is {writer} {number}, not {writer} {expected}")
            records.counts[writer] = number + 1
    return records


@dataclass
class Process:
    """A child process; where it writes its rounds, its error and its steps as JSON."""

    pid: int
    pipe: int

    def result(self) -> tuple[int, str, list[Step]]:
        """Wait for the end of the process, and return what it wrote."""
        with open(self.pipe, encoding="utf-8") as file:
            text = file.read()
        if not text:
            return 0, "ended without a word", []
        rounds, error, steps = json.loads(text)
        return rounds, error, [Step(*step) for step in steps]


def start(work: Work, until: float) -> Process:
    """Run ``work`` in a child process."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return Process(pid, reading)
    steps, rounds, error = Steps(), 0, ""
    try:
        rounds = work(steps, until)
    except BaseException:
        error = traceback.format_exc()
    with open(writing, "w", encoding="utf-8") as file:
        json.dump([rounds, error, [(s.name, s.began, s.seconds) for s in steps.kept()]], file)
    os._exit(0)


def contend(works: dict[str, Work], seconds: float) -> Report:
    """Let processes work beside each other, each by its name."""
    until = time.monotonic() + seconds
    running = {name: start(work, until) for name, work in works.items()}
    report, still = Report(), list[Step]()
    while running:
        late = doze()
        if late.seconds >= STILL_SECONDS:
            still.append(late)
        # A process is done when it writes its result.
        ready, _, _ = select.select([process.pipe for process in running.values()], [], [], 0)
        for name in [name for name, process in running.items() if process.pipe in ready]:
            process = running.pop(name)
            rounds, error, steps = process.result()
            os.waitpid(process.pid, 0)
            report.rounds[name] = rounds
            report.errors += [f"{name}: {error}"] if error else []
            judge(report, steps, still)
        if time.monotonic() > until + GRACE_SECONDS:
            for name, process in running.items():
                report.errors.append(f"{name} hangs: {kernel_stack(process.pid)}")
                os.kill(process.pid, signal.SIGKILL)
            break
    return report


def judge(report: Report, steps: Sequence[Step], still: Sequence[Step]) -> None:
    """Add the steps of a process to a report."""
    for step in steps:
        wait = step.seconds - covered_seconds(step, still)
        for table, value in (
            (report.longest_seconds, step.seconds),
            (report.longest_wait_seconds, wait),
        ):
            table[step.name] = max(table.get(step.name, 0.0), value)
    longest = max((step.seconds for step in still), default=0.0)
    report.stood_still_seconds = max(report.stood_still_seconds, longest)


def doze() -> Step:
    """Sleep for a tick. Returns the time after it in which this process should have been awake."""
    due = time.monotonic() + TICK_SECONDS
    time.sleep(TICK_SECONDS)
    return Step("late", due, time.monotonic() - due)


def covered_seconds(step: Step, others: Sequence[Step]) -> float:
    """Return for how much of a step any of the others was under way."""
    seconds, end = 0.0, step.began
    for other in sorted(others, key=lambda one: one.began):
        begin, until = max(other.began, end), min(other.ends, step.ends)
        if until > begin:
            seconds += until - begin
            end = until
    return seconds


def kernel_stack(pid: int) -> str:
    """Return the functions of the kernel that a process is in."""
    try:
        with open(f"/proc/{pid}/stack") as file:
            return file.read()
    except OSError as error:
        return str(error)


def run_table(directory: str, seconds: float, processes: int) -> Report:
    names = [f"process-{number}" for number in range(processes)]
    with open(f"{directory}/table", "w") as file:
        file.writelines(f"{name} 0\n" for name in names)

    def work(name: str) -> Work:
        return lambda steps, until: change_table(directory, name, steps, until)

    report = contend({name: work(name) for name in names}, seconds)
    if not report.errors:
        report.errors = table_errors(directory, report.rounds)
    return report


def run_append(path: str, seconds: float, writers: Sequence[str], asks: bool) -> Report:
    def work(writer: str) -> Work:
        return lambda steps, until: append(path, writer, asks, steps, until)

    return contend({writer: work(writer) for writer in writers}, seconds)


def main() -> None:
    result: Report | Records
    match sys.argv[1:]:
        case ["table", directory, seconds, processes]:
            result = run_table(directory, float(seconds), int(processes))
        case ["append" | "ask" as how, path, seconds, *writers]:
            result = run_append(path, float(seconds), writers, how == "ask")
        case ["records", path]:
            result = read_records(path)
        case _:
            sys.exit(__doc__)
    print(json.dumps(asdict(result)))


if __name__ == "__main__":
    main()
