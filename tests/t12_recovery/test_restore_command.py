"""``spillway restore`` on an empty machine, as the page for 3 a.m. prints it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.support.clisite import spillway
from tests.support.drainsite import PREFIX, Site
from tests.support.s3server import ACCESS_KEY, SECRET_KEY
from tests.support.t12.names import copied


def arguments(site: Site, directory: Path) -> list[str | Path]:
    bucket = site.settings.bucket
    return [
        *("restore", "--config", directory / "etc" / "spillway.toml"),
        *("--data-dir", directory / "data", "--bucket", bucket.name),
        *("--endpoint-url", bucket.endpoint_url, "--prefix", PREFIX, "--is-gone"),
    ]


def test_an_empty_machine_gets_everything_back(moto_site: Site, tmp_path: Path) -> None:
    site = moto_site
    site.write("run/a", b"1")
    site.drain()
    with copied(site) as copy:
        copy.all()
        site.write("run/b", b"22")
        copy.step()
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    done = spillway(*arguments(site, tmp_path), env={**os.environ, **keys})
    assert done.returncode == 1, done.stderr
    assert "1 file is lost, 2 B" in done.stdout
    assert "  run: 1\n" in done.stdout
    assert "next: spillway up" in done.stdout
    config = tmp_path / "etc" / "spillway.toml"
    listed = spillway("ls", "--json", "/run", "--config", config)
    names = [entry["name"] for entry in json.loads(listed.stdout)]
    assert names == ["a", "b"]
    again = spillway(*arguments(site, tmp_path), env={**os.environ, **keys})
    assert again.returncode != 0
    assert "has a namespace" in again.stderr
