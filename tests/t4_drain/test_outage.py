"""A bucket that is away or refuses us is logged once and shown. Work resumes without a restart."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.common.errors import StoreRefused
from gateway.objectstore import client
from gateway.objectstore.s3 import S3Store
from tests.support.drainsite import PREFIX, Site
from tests.support.s3proxy import Act
from tests.support.s3server import ACCESS_KEY, SECRET_KEY, RcloneServer, credentials
from tests.support.sites import MakeSite
from tests.support.volumes import make_settings
from tests.support.waiting import until


def bucket_state(site: Site) -> str:
    return str(site.report().get("bucket", {}).get("state"))


def test_a_bucket_that_was_down_is_drained_to_when_it_is_back(
    tmp_path: Path, make_site: MakeSite
) -> None:
    with RcloneServer(tmp_path / "own") as server:
        site = make_site(server)
        site.write("before", b"1")
        with site.process():
            until(lambda: not site.left(), "the first file is drained")
            until(lambda: bucket_state(site) == "reachable", "reachable is shown")
            server.stop()
            site.write("during", b"2")
            site.unlink("before")
            until(lambda: bucket_state(site) == "unreachable", "unreachable is shown")
            assert "check bucket.endpoint_url" in site.report()["bucket"]["error"]
            server.start()
            until(lambda: not site.left(), "everything is drained")
            until(lambda: bucket_state(site) == "reachable", "reachable is shown again")
        assert site.objects() == {"during": b"2"}
        lines = site.output.read_text().splitlines()
        assert len([line for line in lines if "is unreachable" in line]) == 1
        assert len([line for line in lines if "is reachable again" in line]) == 1


def test_wrong_credentials_are_shown_and_corrected_ones_are_taken(rclone_site: Site) -> None:
    site = rclone_site
    wrong = "quite+wrong/but-still-a-secret"
    site.set_credentials(credentials(wrong))
    site.write("f", b"data")
    with site.process():
        until(lambda: bucket_state(site) == "refused", "refused is shown")
        remedy = f"correct {site.settings.credentials_file}"
        assert remedy in site.report()["bucket"]["error"]
        assert site.objects() == {}
        site.set_credentials(credentials())
        until(lambda: not site.left(), "everything is drained")
        until(lambda: bucket_state(site) == "reachable", "reachable is shown")
    output = site.output.read_text()
    assert output.count("is refused") == 1
    shown = output + (site.settings.run_dir / "drain.json").read_text()
    assert not any(secret in shown for secret in (wrong, SECRET_KEY, ACCESS_KEY))


def test_a_renewed_session_token_is_taken_before_anything_is_refused(rclone_site: Site) -> None:
    """What renews a token writes the file while the former token still works."""
    site = rclone_site
    store = S3Store(site.settings)
    store.put(f"{PREFIX}/one", b"data", {})
    site.set_credentials(credentials() + "aws_session_token = renewed==\n")
    store.put(f"{PREFIX}/two", b"data", {})
    store.head(f"{PREFIX}/two")
    tokens = [r.headers.get("x-amz-security-token") for r in site.proxy.operations()]
    assert tokens == [None, "renewed==", "renewed=="]
    # A file that is half written is no reason to stop.
    site.set_credentials("[default]\naws_access_key_id = half\n")
    store.put(f"{PREFIX}/three", b"data", {})
    site.set_credentials(credentials())
    store.put(f"{PREFIX}/four", b"data", {})
    tokens = [r.headers.get("x-amz-security-token") for r in site.proxy.operations("PUT")]
    assert tokens == [None, "renewed==", "renewed==", None]


def test_credentials_are_read_again_after_one_refusal(rclone_site: Site) -> None:
    """The file looks unchanged: its time was kept, or the clock went back."""
    site = rclone_site
    path = site.settings.credentials_file
    site.set_credentials(credentials(SECRET_KEY[::-1]))
    before, stamp = path.stat(), client.stamp_of(site.settings)
    store = S3Store(site.settings)
    with pytest.raises(StoreRefused, match="refuses our credentials"):
        store.put(f"{PREFIX}/f", b"data", {})
    path.write_text(credentials())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert client.stamp_of(site.settings) == stamp
    store.put(f"{PREFIX}/f", b"data", {})


def test_credentials_that_may_list_but_not_write_do_not_flap(rclone_site: Site) -> None:
    site = rclone_site
    denied = site.proxy.inject(
        lambda r: r.method == "PUT", Act.FAIL, 1e9, status=403, code="AccessDenied"
    )
    for number in range(4):  # the refusal of a single key would only be a failure of its file
        site.write(f"f{number}", b"data")
    with site.process():
        until(lambda: len(site.proxy.operations("PUT")) >= 4, "several tries")
        until(lambda: bucket_state(site) == "refused", "refused is shown")
        assert "grant" in site.report()["bucket"]["error"]
        denied.release()
        until(lambda: not site.left(), "everything is drained")
        until(lambda: bucket_state(site) == "reachable", "reachable is shown")
    assert site.output.read_text().count("is refused") == 1


def test_a_missing_bucket_is_named(rclone_site: Site) -> None:
    site = rclone_site
    site.delete_bucket()
    with pytest.raises(StoreRefused, match=f"no bucket {site.bucket} at .*: create it or correct"):
        S3Store(site.settings).check()


@pytest.mark.parametrize(
    "text",
    [
        "aws_secret_access_key = {secret}",
        "[default]\n{secret}",
        "[default]\naws_access_key_id = {secret}",
        "[other]\naws_secret_access_key = {secret}",
        "[default]\naws_access_key_id\naws_secret_access_key {secret}",
    ],
)
def test_a_bad_credentials_file_is_named_but_not_quoted(tmp_path: Path, text: str) -> None:
    settings = make_settings(tmp_path)
    settings.credentials_file.write_text(text.format(secret=SECRET_KEY))
    with pytest.raises(StoreRefused, match=str(settings.credentials_file)) as raised:
        S3Store(settings).check()
    assert SECRET_KEY not in f"{raised.value!r} {raised.value.__cause__!r}"


def test_slow_down_is_waited_out(rclone_site: Site) -> None:
    site = rclone_site
    site.proxy.inject(lambda r: r.method == "PUT", Act.FAIL, times=6)
    for number in range(4):
        site.write(f"f{number}", b"x")
    with site.draining():
        until(lambda: not site.left(), "everything is drained")
    assert len(site.objects()) == 4


def test_a_drain_without_a_volume_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "spillway.toml"
    path.write_text(f'[gateway]\ndata_dir = "{tmp_path}/none"\n[bucket]\nname = "b"\n')
    command = [sys.executable, "-m", "gateway.processes.drain", "--config", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "spillway init" in ended.stderr
    assert "Traceback" not in ended.stderr
