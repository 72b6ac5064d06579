"""Records of a catalogue, for tests that need no real evidence."""

from __future__ import annotations

from gateway.config.settings import Settings
from tests.support.volumes import query

WHOLE = "state IN ('complete', 'draining', 'durable')"
INSERT = """
INSERT INTO checkpoint_record (ino, run, rule, step, extent, grade, completion, complete_ns,
  durable_ns, files, size, contents, shape, members)
SELECT ino, run, rule, step, extent, grade, :completion, complete_ns, durable_ns, files, size,
  evidence, '', NULL
FROM checkpoint WHERE ino = :ino
"""


def record(settings: Settings, grade: str = "listed") -> None:
    """Give a grade to what is whole and has none or the weakest, and a record, in the order of the
    times of completion, to what the catalogue itself has not recorded."""
    weak = f"{WHOLE} AND (grade IS NULL OR grade = 'marked')"
    query(settings, f"UPDATE checkpoint SET grade = :grade WHERE {weak}", grade=grade)
    query(settings, "UPDATE checkpoint_record SET grade = :g WHERE grade = 'marked'", g=grade)
    new = query(
        settings,
        "SELECT c.ino FROM checkpoint c LEFT JOIN checkpoint_record r ON r.ino = c.ino"
        f" WHERE c.{WHOLE} AND r.ino IS NULL ORDER BY c.complete_ns, c.ino",
    )
    [(last,)] = query(settings, "SELECT coalesce(max(completion), 0) FROM checkpoint_record")
    for place, (ino,) in enumerate(new, last + 1):
        query(settings, INSERT, ino=ino, completion=place)
