"""The records of a catalogue, for tests that need no real evidence."""

from __future__ import annotations

from gateway.settings import Settings
from tests.support.volumes import query

WHOLE = "state IN ('complete', 'draining', 'durable')"
INSERT = """
INSERT INTO checkpoint_record (ino, run, grade, completion, complete_ns, durable_ns, files, size,
  contents, shape, members)
SELECT ino, run, :grade, :completion, complete_ns, durable_ns, files, size, evidence, '', NULL
FROM checkpoint WHERE ino = :ino
"""


def record(settings: Settings, grade: str = "listed") -> None:
    """Give a grade to what is whole and has none, and record what has other members than before, in
    the order of the times of completion."""
    rows = query(settings, f"SELECT ino FROM checkpoint WHERE {WHOLE} AND grade IS NULL")
    known = dict(query(settings, "SELECT ino, grade FROM checkpoint_record"))
    for (ino,) in rows:
        given = known.get(ino, grade)
        query(settings, "UPDATE checkpoint SET grade = :g WHERE ino = :i", g=given, i=ino)
    new = query(
        settings,
        "SELECT c.ino FROM checkpoint c LEFT JOIN checkpoint_record r ON r.ino = c.ino"
        f" WHERE c.{WHOLE} AND (r.ino IS NULL OR r.contents <> c.evidence)"
        " ORDER BY c.complete_ns, c.ino",
    )
    [(last,)] = query(settings, "SELECT coalesce(max(completion), 0) FROM checkpoint_record")
    for place, (ino,) in enumerate(new, last + 1):
        query(settings, "DELETE FROM checkpoint_record WHERE ino = :ino", ino=ino)
        given = known.get(ino, grade)
        query(settings, INSERT, ino=ino, grade=given, completion=place)
