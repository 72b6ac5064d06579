"""Files that cannot reach the bucket without help are shown, fail the status, and end the wait."""

from __future__ import annotations

import io
import json
import subprocess
import threading
from contextlib import redirect_stdout
from typing import Any
from unittest.mock import ANY

import pytest

from gateway.cli.main import main
from gateway.common import clock
from gateway.drain.admission import retries
from gateway.drain.admission.retries import FOR_GOOD
from gateway.drain.job import WorkKind
from gateway.drain.plan.renames import LEFT_MAX, Renames
from gateway.service import alarms
from tests.support.clisite import spillway
from tests.support.drainsite import PREFIX, Site
from tests.support.s3proxy import Act
from tests.support.t4.refused import bucket_state
from tests.support.t4.renames import FIRST_INO, context_of, fill, read_round, rekeys
from tests.support.volumes import alarms_in, status_of
from tests.support.waiting import until


def run(site: Site, *args: str) -> subprocess.CompletedProcess[str]:
    return spillway(*args, "--config", site.settings.source)


def wait(site: Site, *args: str) -> tuple[int, dict[str, Any]]:
    """Run ``spillway drain --wait`` in this process, because the start of a command takes seconds.
    Returns its exit status and its last facts."""
    out = io.StringIO()
    with redirect_stdout(out):
        code = main(["drain", "--config", str(site.settings.source), "--wait", "--json", *args])
    facts: dict[str, Any] = json.loads(out.getvalue())
    return code, facts


def stuck(site: Site) -> dict[str, str]:
    """Return the reasons that ``spillway status`` gives for files that fail for good, by path."""
    return {entry["path"]: entry["reason"] for entry in status_of(site.settings)["stuck"]["first"]}


def test_a_file_whose_bytes_are_lost_ends_the_wait_and_needs_attention(rclone_site: Site) -> None:
    site = rclone_site
    site.write("lost", b"bytes")
    site.namespace.files.remove(site.attr("lost").ino, 0)
    site.write("good", b"data")
    with site.process():
        code, facts = wait(site)
        assert (code, facts["drained"], facts["waiting_files"]) == (1, False, 1)
        assert "/checkpoints/lost: " in facts["error"]
        assert "is missing, 5 bytes expected" in facts["error"]
        assert wait(site, "good")[0] == 0
        until(lambda: stuck(site), "it is shown")
        assert "write the file again, or delete it" in stuck(site)["/checkpoints/lost"]
        status = run(site, "status")
        assert status.returncode == 1
        assert "stuck       /checkpoints/lost: " in status.stdout
        site.unlink("lost")
        until(lambda: not site.rows("SELECT * FROM retry"), "the failure of a deleted file goes")
        assert stuck(site) == {}
        until(lambda: site.report().get("failures") == [], "it is shown no longer")
        assert wait(site)[0] == 0
    assert site.objects() == {"good": b"data"}


def test_a_failure_is_forgotten_when_the_file_goes_up_under_another_name(
    rclone_site: Site,
) -> None:
    site = rclone_site
    site.write("a", b"data")
    fault = site.proxy.inject(
        lambda r: r.operation == "PUT" and r.key.endswith("/a"), Act.FAIL, 1e9, 400, "Unusual"
    )
    site.drain()
    site.drain()
    assert "Unusual" in stuck(site)["/checkpoints/a"]
    site.rename("a", "b")
    site.drain()
    assert site.objects() == {"b": b"data"}
    site.drain()
    assert site.rows("SELECT * FROM retry") == []
    fault.release()


def test_a_file_is_not_held_up_by_the_failure_of_an_earlier_one_at_its_key(
    rclone_site: Site,
) -> None:
    site = rclone_site
    # The next try of the earlier file would be far later than the end of the test.
    site.configure(retry_max_seconds=10_000)
    lost = site.write("f", b"bytes")
    site.namespace.files.remove(lost, 0)
    site.drain()
    later_ns = clock.now_ns() + 5_000 * clock.NS
    site.rows(f"UPDATE retry SET next_ns = {later_ns} RETURNING 1")
    site.write("new", b"data")
    site.rename("new", "f")
    with site.draining():
        until(lambda: site.objects() == {"f": b"data"}, "the file that replaced it is drained")


def test_failures_that_were_forgotten_are_shown_again(rclone_site: Site) -> None:
    """An upgrade may drop them (migrations/versions/0008)."""
    site = rclone_site
    kept, moved = site.write("kept", b"bytes"), site.write("moved", b"bytes")
    site.drain()
    site.write("kept", b"later")
    for ino in (kept, moved):
        site.namespace.files.remove(ino, 0)
    site.rename("moved", "elsewhere")
    site.client.delete_object(Bucket=site.bucket, Key=f"{PREFIX}/moved")
    for _ in range(2):
        with site.process():
            until(lambda: len(stuck(site)) == 2, "both are shown")
        shown = stuck(site)
        assert "is missing" in shown["/checkpoints/kept"]
        assert "it is not sent again instead" in shown["/checkpoints/elsewhere"]
        site.rows("DELETE FROM retry RETURNING 1")
        assert stuck(site) == {}


def test_a_damaged_file_ends_the_wait_and_needs_attention(rclone_site: Site) -> None:
    site = rclone_site
    ino = site.write("f", b"data")
    site.rows(
        "INSERT INTO damage (ino, content_version, reason, noted_ns) "
        f"SELECT ino, content_version, 'an fsync failed', 1 FROM inode WHERE ino = {ino} "
        "RETURNING 1"
    )
    assert "an fsync failed" in stuck(site)["/checkpoints/f"]
    with site.process():
        code, facts = wait(site)
    assert code == 1
    assert "/checkpoints/f: an fsync failed" in facts["error"]
    assert site.objects() == {}
    site.write("f", b"a later version")
    assert "an fsync failed" in stuck(site)["/checkpoints/f"]
    code, facts = wait(site)
    assert code == 1
    assert "/checkpoints/f: an fsync failed" in facts["error"]
    site.namespace.whole(ino)
    assert stuck(site) == {}
    site.drain()
    assert site.objects() == {"f": b"a later version"}


def test_a_rename_that_the_bucket_has_not_followed_is_waited_for(rclone_site: Site) -> None:
    site = rclone_site
    for path in ("dir/f", "dir/g", "other/f"):
        site.write(path, path.encode())
    site.drain()
    site.rename("dir", "new")
    for paths in ([], ["new"], ["new/f"], ["new/g", "other"]):
        code, facts = wait(site, "--timeout", "0.2", *paths)
        assert (code, facts["drained"]) == (1, False)
        assert "1 renames" in facts["error"]
    assert wait(site, "other")[0] == 0
    with site.process():
        assert wait(site)[0] == 0
        assert set(site.objects()) >= {"new/f", "new/g", "other/f"}
        # As long as the directory has a row, a wait for new/g waits for all that is below it.
        until(site.is_clean, "the drain has dropped the row of the directory")
    site.rename("new/f", "new/h")
    assert wait(site, "--timeout", "0.2", "new/h")[0] == 1
    assert wait(site, "--timeout", "0.2", "new")[0] == 1
    assert wait(site, "--timeout", "0.2", "new/g")[0] == 0
    # A held file is not waited for, even if its object is at another key.
    site.rename("new/h", "new/h.tmp")
    assert wait(site, "--timeout", "5")[0] == 0


def test_much_that_is_held_or_stuck_below_a_renamed_directory_is_not_waited_for(
    rclone_site: Site,
) -> None:
    """The drain keeps the row of such a directory, so the wait judges what is below it."""
    site = rclone_site
    count = LEFT_MAX + 1
    fill(site, "big", FIRST_INO, count, "old")
    site.rename("big", "new")
    site.configure(incomplete_patterns=["f*"])
    context = context_of(site)
    renames = Renames(0.0, 30.0)
    for _ in range(3):
        read_round(renames, context)
        renames.restart()
    context.database.close()
    assert rekeys(site) == [site.attr("new").ino]
    assert wait(site, "--timeout", "5") == (0, ANY)
    # One that can be moved is waited for.
    last = FIRST_INO + count - 1
    site.rows(f"UPDATE dirent SET name = CAST('g' AS BLOB) WHERE ino = {last} RETURNING 1")
    code, facts = wait(site, "--timeout", "0.2", "new")
    assert (code, facts["waiting_renames"]) == (1, 1)
    site.configure(incomplete_patterns=[])
    site.rows(
        'INSERT INTO retry (work, ino, "key", tries, error, next_ns) SELECT '
        f"'{WorkKind.COPY.value}', ino, 'k', 2, '{FOR_GOOD}it vanished', 1 FROM object RETURNING 1"
    )
    code, facts = wait(site, "--timeout", "5")
    assert code == 1
    assert facts["error"].startswith(f"{count} files need a person: /checkpoints/new/")


def test_a_bucket_that_denies_deletions_does_not_end_the_wait_for_uploads(
    rclone_site: Site,
) -> None:
    site = rclone_site
    for number in range(5):
        site.write(f"old/{number}", b"x")
    site.drain()
    fault = site.proxy.inject(lambda r: r.operation == "DELETE", Act.FAIL, 1e9, 403, "AccessDenied")
    site.configure(retry_max_seconds=10_000)
    with site.process():
        for number in range(5):
            site.unlink(f"old/{number}")
        until(lambda: bucket_state(site) == "refused", "refused is shown")
        held = site.proxy.inject(lambda r: r.operation == "PUT", Act.HOLD)
        site.write("new", b"data")
        held.wait()
        # The wait has begun when the timer ends.
        threading.Timer(4.0, held.release).start()
        code, facts = wait(site, "--timeout", "30")
        assert (code, facts["error"]) == (0, None)
        assert "new" in site.objects()
    fault.release()


def test_what_is_tried_for_long_needs_attention(
    rclone_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store never says that it refuses the key, and takes all others."""
    site = rclone_site
    always = site.proxy.inject(
        lambda r: r.operation == "PUT" and r.key.endswith("/f"), Act.FAIL, 1e9, 500, "InternalError"
    )
    site.write("f", b"data")
    with site.draining() as drain:
        until(lambda: drain.counters.retries > 2, "it is tried again")
        site.write("other", b"data")
        until(lambda: "other" in site.objects(), "another file is sent")
        assert stuck(site) == {}
        monkeypatch.setattr(retries, "LASTING_NS", clock.NS)
        until(lambda: stuck(site), "it is shown")
        assert "answers InternalError" in stuck(site)["/checkpoints/f"]
        assert stuck(site)["/checkpoints/f"].startswith("tried for ")
        facts = status_of(site.settings)
        assert alarms_in(facts)[alarms.FILES_STUCK] == 1
        assert not facts["healthy"]
        always.release()
        until(lambda: stuck(site) == {}, "it works")
    assert site.objects().keys() == {"f", "other"}


def test_an_outage_is_no_time_of_tries(rclone_site: Site) -> None:
    """A job that failed at its beginning is not tried during it."""
    site = rclone_site
    site.write("f", b"data")
    row = "INSERT INTO retry (work, ino, key, tries, error, next_ns, since_ns) VALUES "
    now_ns, ino = clock.now_ns(), site.attr("f").ino
    began_ns = now_ns - 7200 * clock.NS
    values = f"('uploads', {ino}, '{PREFIX}/f', 1, 'no answer', {began_ns}, {began_ns})"
    site.rows(f"{row} {values} RETURNING 1")
    assert stuck(site) == {}
