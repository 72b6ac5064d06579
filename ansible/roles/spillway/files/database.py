"""Copies the database of a stopped gateway and the stamp of its data files, or puts the copies
back: ``database.py save|restore COPY``.

The user of the gateway runs it: in the data directory that user may have put a link in the place of
a file, and root would follow it. The configuration says where the database is. A password in its
URL is handed over by the environment, because the arguments of a process can be read by every user
of the machine.
"""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

CONFIG = Path("/etc/spillway/spillway.toml")
# A migration may have added tables that the copy does not know. They would be in the way of the
# tables that they refer to, and of the next migration.
EMPTY = """\
DO $$ DECLARE own name; BEGIN
    FOR own IN SELECT tablename FROM pg_tables
            WHERE schemaname = current_schema() AND tableowner = current_user LOOP
        EXECUTE format('DROP TABLE %I CASCADE', own);
    END LOOP;
END $$"""


def main(verb: str, copy: str, config: Path = CONFIG) -> None:
    """Save or restore. The stamp is COPY with ``.stamp.json`` behind it.

    Raises sqlite3.Error, CalledProcessError, OSError, SystemExit.
    """
    found: dict[str, Any] = tomllib.loads(config.read_text(encoding="utf-8"))
    url = found.get("namespace", {}).get("url")
    data_dir = Path(found.get("gateway", {}).get("data_dir", "/var/lib/spillway"))
    if verb == "save":
        Path(copy).parent.mkdir(mode=0o700, exist_ok=True)
    stamps = data_dir / "files/stamp.json", Path(f"{copy}.stamp.json")
    source, target = stamps if verb == "save" else reversed(stamps)
    # It is read first: a database that is put back without its stamp would be refused.
    stamp = source.read_bytes()
    if url:
        _postgresql(verb, copy, url)
    else:
        _sqlite(verb, copy, str(data_dir / "namespace.db"))
    _replace(target, stamp)


def _sqlite(verb: str, copy: str, own: str) -> None:
    source, target = (own, copy) if verb == "save" else (copy, own)
    # Without the mode a source that is missing would be made, and be copied as an empty database.
    with (
        closing(sqlite3.connect(f"{Path(source).as_uri()}?mode=rw", uri=True)) as one,
        closing(sqlite3.connect(target)) as other,
    ):
        one.backup(other)


def _replace(path: Path, content: bytes) -> None:
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _postgresql(verb: str, copy: str, url: str) -> None:
    where, password = without_password(url)
    environ = {**os.environ, **({} if password is None else {"PGPASSWORD": password})}
    if verb == "save":
        dump = ["pg_dump", "--format=custom", f"--file={copy}", where]
        subprocess.run(dump, env=environ, check=True)
        require_own_version(copy)
        return
    # The whole script is made first: what fails half-way must not be taken for its end.
    script = f"{copy}.sql"
    try:
        make = ["pg_restore", "--clean", "--if-exists", f"--file={script}", copy]
        subprocess.run(make, check=True)
        options = ["--no-psqlrc", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1"]
        what = [f"--command={EMPTY}", f"--file={script}"]
        subprocess.run(["psql", *options, *what, where], env=environ, check=True)
    finally:
        Path(script).unlink(missing_ok=True)


def require_own_version(copy: str) -> None:
    """Require that server and tools have one major version. Raises SystemExit, CalledProcessError.

    PostgreSQL does not promise that an older server takes what newer tools write: that of
    pg_restore 17 begins with a setting that older servers refuse.
    """
    listed = subprocess.check_output(["pg_restore", "--list", copy], text=True)
    found = re.findall(r"^; +Dumped (?:from database|by pg_dump) version: (\d+)", listed, re.M)
    if len(found) != 2 or found[0] != found[1]:
        raise SystemExit(
            f"the server and the tools of PostgreSQL have the versions {' and '.join(found)}, and "
            "the copy could not be put back: install postgresql-client of the server's version, "
            "and remove the others"
        )


def without_password(url: str) -> tuple[str, str | None]:
    """Return a URL without its password, and the password, or None."""
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    name, colon, secret = user.partition(":")
    password = unquote(secret) if colon else None
    options = []
    for option in parts.query.split("&"):
        if option.startswith("password="):
            password = unquote(option.removeprefix("password="))
        elif option:
            options.append(option)
    query = f"?{'&'.join(options)}" if options else ""
    scheme = parts.scheme.partition("+")[0]
    return f"{scheme}://{name}{at}{hosts}{parts.path}{query}", password


if __name__ == "__main__":
    os.umask(0o077)
    main(*sys.argv[1:])
