"""Saves a whole checkpoint through gateways to S3, as a user runs them.

The measured time ends when the last rename is answered, not when the bucket has the objects. Each
pair of saves has a gateway, a bucket, an S3 server and a cache of its own. All are on the same
disk and are deleted afterwards.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.bench import load
from tests.bench.load import MIB
from tests.bench.rows import Measured, Row, Target
from tests.support.gateway import BUCKET, Gateway
from tests.support.nfsserver import accepts
from tests.support.ports import free_port
from tests.support.s3server import ACCESS_KEY, SECRET_KEY, RcloneServer, die_with_parent
from tests.support.waiting import until

RANKS = 8
FILE_BYTES = 64 * MIB
DEPTH = 4
STOP_SECONDS = 30.0
HUNG_SECONDS = 40.0
"""The limit of two saves; on a slow disk they take a quarter of it."""


class HungError(Exception):
    """A gateway stopped answering."""


Saver = Callable[[Path, RcloneServer], float]
"""Starts a gateway in a new directory and saves through it; returns the seconds of the save."""


class Peer(NamedTuple):
    name: str
    save: Saver


def through_spillway(directory: Path, s3: RcloneServer) -> float:
    gateway = Gateway(
        directory,
        s3,
        values={"drain": {"settle_seconds": 5.0}},
    )
    with gateway:
        until((gateway.data_dir / "run" / "drain.json").exists, "the drain", STOP_SECONDS)

        def save(name: str) -> float:
            flight = ("--connections", RANKS, "--depth", DEPTH)
            options = (*flight, "--file", FILE_BYTES, "--dir", name)
            return load.nfs(gateway.port, "save", *options, export="/checkpoints").seconds

        return _second(save)


def through_rclone_nfs(directory: Path, s3: RcloneServer) -> float:
    port = free_port()
    command = [*_rclone("serve", "nfs", directory), "--addr", f"127.0.0.1:{port}", f"s3:{BUCKET}"]
    with _running(command, directory, _rclone_environ(s3)):
        until(partial(accepts, port), "rclone serve nfs", STOP_SECONDS)
        arguments = ("127.0.0.1", port, RANKS, FILE_BYTES)
        return _second(lambda name: load.run("nfs3save", *arguments, name).seconds)


def through_rclone_mount(directory: Path, s3: RcloneServer) -> float:
    mount_point = directory / "mnt"
    command = [*_rclone("mount", directory), f"s3:{BUCKET}", str(mount_point)]
    return _through_mount(command, directory, mount_point, _rclone_environ(s3))


def through_s3fs(directory: Path, s3: RcloneServer) -> float:
    """Save through s3fs with norenameapi: `rclone serve s3` refuses the copy of its renames."""
    mount_point = directory / "mnt"
    keys = directory / "keys"
    keys.touch(0o600)
    keys.write_text(f"{ACCESS_KEY}:{SECRET_KEY}\n")
    options = f"url={s3.url},use_path_request_style,norenameapi,passwd_file={keys}"
    command = ["s3fs", BUCKET, str(mount_point), "-f", "-o", options]
    return _through_mount(command, directory, mount_point, {})


def on_local_disk(directory: Path, _s3: RcloneServer) -> float:
    """Save without a gateway: the time that the disk itself takes when every file is synced."""
    return _second(partial(_save_files, directory / "mnt"))


PEERS = (
    Peer("rclone serve nfs", through_rclone_nfs),
    Peer("rclone mount", through_rclone_mount),
    Peer("s3fs", through_s3fs),
)
LIMIT = Peer("local files, no gateway", on_local_disk)


def measure(directory: Path, alternations: int) -> list[Measured]:
    """Save through Spillway, then through each peer, ``alternations`` times.

    Returns a row for each peer with the saves that ended, and a row for the fastest peer.
    """
    ours: list[float] = []
    peers: dict[str, list[float]] = {peer.name: [] for peer in (*PEERS, LIMIT)}
    for _ in range(alternations):
        ours.append(_once(directory, through_spillway))
        for peer in (*PEERS, LIMIT):
            peers[peer.name].append(_patiently(directory, peer))
    setting = f"disk, {RANKS} ranks of {FILE_BYTES // MIB} MiB"
    row = partial(Row, "whole save with a bucket behind", setting, unit="MiB/s")
    fastest = [max(rates) for rates in zip(*(peers[peer.name] for peer in PEERS), strict=True)]
    ended = {
        name: [pair for pair in zip(ours, rates, strict=True) if pair[1]]
        for name, rates in peers.items()
    }
    return [
        *(Measured(row(name), *zip(*pairs, strict=True)) for name, pairs in ended.items() if pairs),
        Measured(row("the fastest of the three", target=Target(2.0)), tuple(ours), tuple(fastest)),
    ]


def _second(save: Callable[[str], float]) -> float:
    """Return the seconds of a second save. A gateway runs for months, so its first save is rare.

    Args:
        save: called with a name that no other save has.
    """
    save("first")
    os.sync()
    load.claim_memory()
    return save("second")


def _save_files(parent: Path, name: str) -> float:
    (parent / name).mkdir()
    return load.local_save(parent / name, RANKS, FILE_BYTES)


def _patiently(directory: Path, peer: Peer) -> float:
    """Do the same as _once, but return 0 for a save that hung.

    A busy `rclone serve s3` sometimes answers s3fs with 500 ("file already exists"), and repeats
    this for the same file without an end.
    """
    try:
        return _once(directory, peer.save)
    except HungError:
        print(f"{peer.name}: a save hung", file=sys.stderr)
        return 0.0


def _once(directory: Path, save: Saver) -> float:
    """Return the MiB/s of the second save in a directory that is deleted afterwards."""
    directory.mkdir()
    try:
        with RcloneServer(directory / "bucket") as s3:
            (s3.directory / BUCKET).mkdir()
            site = directory / "site"
            (site / "mnt").mkdir(parents=True)
            os.sync()
            return RANKS * FILE_BYTES / MIB / save(site, s3)
    finally:
        shutil.rmtree(directory)


def _through_mount(
    command: list[str], directory: Path, mount_point: Path, environ: Mapping[str, str]
) -> float:
    with _running(command, directory, environ) as process:
        watchdog = threading.Timer(HUNG_SECONDS, process.kill)
        watchdog.start()
        try:
            until(mount_point.is_mount, command[0], STOP_SECONDS)
            return _second(partial(_save_files, mount_point))
        except OSError as exc:
            if process.poll() is None:
                raise
            raise HungError from exc
        finally:
            watchdog.cancel()
            # A lazy unmount does not wait for files that are not in the bucket yet: they do not
            # matter here.
            subprocess.run(["umount", "-l", mount_point], check=False)


def _rclone(*words: str | Path) -> list[str]:
    """Return the command line up to the remote. The last word is the directory of the cache."""
    *command, directory = map(str, words)
    program = str(Path(sys.executable).with_name("rclone"))
    options = ("--config", "", "--vfs-cache-mode", "full", "--cache-dir", f"{directory}/cache")
    return [program, *command, *options]


def _rclone_environ(s3: RcloneServer) -> dict[str, str]:
    values = {
        "TYPE": "s3",
        "PROVIDER": "Rclone",
        "ENDPOINT": s3.url,
        "ACCESS_KEY_ID": ACCESS_KEY,
        "SECRET_ACCESS_KEY": SECRET_KEY,
    }
    return {f"RCLONE_CONFIG_S3_{key}": value for key, value in values.items()}


@contextmanager
def _running(
    command: list[str], directory: Path, environ: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **environ},
            preexec_fn=die_with_parent,
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
