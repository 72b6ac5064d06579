"""Demonstrates the main job: a checkpoint saved through NFS reaches the bucket, byte for byte, and
the gateway knows that it is one, what a policy would do with it, and how to keep it.

``make demo`` runs it with an S3 server, a gateway, and a virtual machine with the Linux kernel's
own NFS client. The exit status is 0 only if every sha256 is the same from end to end. With
``--keep`` (``make demo KEEP=1``) the gateway, its pages and the S3 server run until Ctrl-C.
"""

from __future__ import annotations

import argparse
import hashlib
import signal
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from gateway.common.units import size
from tests.support.client import read_back, save
from tests.support.clisite import PROGRAM
from tests.support.gateway import BUCKET, Gateway
from tests.support.ports import free_port
from tests.support.s3server import RcloneServer
from tests.support.vm.build import build_image
from tests.support.vm.client import ClientVm

CACHE = Path(__file__).parents[1] / "build" / "vm"
DIRECTORY = "step_1000"
NEXT = "step_2000"
PROMOTED = "release-1"
RANKS = 8
SHARD_MIB = 16
RULE = {"name": "ranks", "path": "step_{step}", "files": RANKS}
"""The layout of the save has no file that says that it is complete, so their number must."""
POLICY = """
[[policy]]
name = "demo"
path = "step_*"
keep_newest = 1
wait_hours = 0
"""
DRAIN_DEADLINE_SECONDS = 120.0
CATALOGUE_DEADLINE_SECONDS = 90.0
READ_TIMEOUT_SECONDS = 15.0
"""rclone answers a few of the first uploads into a new directory with InternalError. Their objects
are looked at again after three times as long, and are durable only then."""

_started = time.monotonic()


def say(line: str) -> None:
    print(f"[{time.monotonic() - _started:5.1f} s] {line}", flush=True)


def watch_drain(gateway: Gateway) -> bool:
    """Print the backlog until it is empty. Returns False if that takes too long."""
    shown = -1
    until = time.monotonic() + DRAIN_DEADLINE_SECONDS
    while time.monotonic() < until:
        status = gateway.status()
        left_bytes = status["dirty"]["bytes"]
        if left_bytes != shown:
            say(f"drain: {status['dirty']['files']} files, {size(left_bytes)} to go")
            shown = left_bytes
        if status["dirty"]["files"] == 0:
            return True
        time.sleep(0.2)
    return False


def show_checkpoints(gateway: Gateway, number: int) -> bool:
    """Print the checkpoints when the catalogue has seen the last upload.

    Returns whether so many are durable.
    """
    deadline = time.monotonic() + CATALOGUE_DEADLINE_SECONDS
    while True:
        shown = gateway.spillway("checkpoint", "list").stdout
        is_durable = shown.count(" durable ") >= number
        if is_durable or time.monotonic() > deadline:
            for line in shown.splitlines():
                say(f"spillway checkpoint list: {line}")
            if not is_durable:
                for directory in (DIRECTORY, NEXT):
                    run(gateway, "wait", "--durable", "--timeout", "0", directory)
            return is_durable
        time.sleep(0.5)


def run(gateway: Gateway, *arguments: str) -> bool:
    """Run a command and print what it says. Returns whether it succeeded."""
    done = gateway.spillway(*arguments, check=False)
    for line in (done.stdout + done.stderr).splitlines():
        say(f"spillway {arguments[0]}: {line}")
    return done.returncode == 0


def keep_one(directory: Path, gateway: Gateway) -> bool:
    """Show what a policy would do, and promote the checkpoint that it would delete. Returns whether
    both worked."""
    policy = directory / "policy.toml"
    policy.write_text(POLICY)
    say("a policy that keeps the newest checkpoint of each run would do this:")
    shown = run(gateway, "policy", "plan", "--policy", str(policy))
    promoted = run(
        gateway,
        "checkpoint",
        "promote",
        DIRECTORY,
        "--as",
        PROMOTED,
        "--note",
        "the demo's release",
    )
    say("and after the promotion:")
    return run(gateway, "policy", "plan", "--policy", str(policy)) and shown and promoted


def compare(saved: dict[str, str], through_nfs: dict[str, str], bucket: Path) -> int:
    """List the bucket beside the saved files. Returns how many files differ."""
    below = bucket / DIRECTORY
    objects = {
        str(path.relative_to(bucket)): path for path in sorted(below.rglob("*")) if path.is_file()
    }
    wrong = 0
    print(f"\n{'object':28} {'bytes':>10}  sha256 (first 16)  saved = NFS = bucket")
    for key in sorted(objects.keys() | {f"{DIRECTORY}/{name}" for name in saved}):
        name = key.removeprefix(f"{DIRECTORY}/")
        body = objects[key].read_bytes() if key in objects else b""
        digest = hashlib.sha256(body).hexdigest() if key in objects else "(missing)"
        same = digest == saved.get(name) == through_nfs.get(name)
        wrong += not same
        print(f"{key:28} {len(body):10}  {digest[:16]:17}  {'yes' if same else 'NO'}")
    return wrong


def show_pages(gateway: Gateway, port: int) -> None:
    """Print the address of the pages, and a token to log in with."""
    token = gateway.spillway("token", "create", "--role", "admin", "--name", "demo").stdout.strip()
    say(f"the pages are at http://127.0.0.1:{port}/ ; to log in paste this token:")
    say(token)


def wait_for_a_signal() -> None:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()
    say("stopping")


def demo(directory: Path, stack: ExitStack, keeps: bool) -> int:
    pages_port = free_port()
    server = stack.enter_context(RcloneServer(directory / "s3"))
    say(f"S3 server (rclone serve s3) at {server.url}, bucket {BUCKET}")
    gateway = stack.enter_context(
        Gateway(
            directory / "gateway",
            server,
            values={
                "checkpoints": {"rule": [RULE]},
                "admin": {"enabled": True, "port": pages_port},
                "bucket": {"read_timeout_seconds": READ_TIMEOUT_SECONDS},
            },
            say=say,
            # Ctrl-C must reach only this process, which stops the gateway before the S3 server.
            process_group=0 if keeps else None,
        )
    )
    show_pages(gateway, pages_port)
    status = show(gateway, server, directory)
    if keeps:
        show_pages(gateway, pages_port)
        say(f"mount it: mount -t nfs4 -o port={gateway.port} 127.0.0.1:/checkpoints /mnt")
        say(f"ask it: {PROGRAM} status --config {gateway.config}")
        say("all of it runs until Ctrl-C")
        wait_for_a_signal()
    return status


def show(gateway: Gateway, server: RcloneServer, directory: Path) -> int:
    """Run the demonstration. Returns the exit status."""
    say("booting a client (Debian's kernel under qemu, software emulation)")
    console = directory / "console.log"
    with ClientVm.boot(build_image(CACHE), console_log=console) as vm:
        vm.mount(gateway.port)
        say(f"client: Linux {vm.run(['uname', '-r']).stdout.strip()}, mounted on /mnt/ckpt")
        say(f"client: {RANKS} ranks save {SHARD_MIB} MiB each: write .tmp, fsync, rename")
        saved, seconds = save(vm, DIRECTORY, ranks=RANKS, mib=SHARD_MIB)
        say(f"client: saved {len(saved)} shards in {seconds:.1f} s")
        drained = watch_drain(gateway)
        say(f"client: {RANKS} ranks save the next checkpoint, {NEXT}")
        save(vm, NEXT, ranks=RANKS, mib=SHARD_MIB // 2)
        drained = watch_drain(gateway) and drained
        durable = show_checkpoints(gateway, 2)
        kept = durable and keep_one(directory, gateway)
        evicted = run(gateway, "evict", DIRECTORY)
        through_nfs = read_back(vm, DIRECTORY)
        say("client: read all of it back, from the bucket")
        promoted = read_back(vm, f".spillway/promoted/{PROMOTED}") == saved
        say(f"client: read the promoted copy, .spillway/promoted/{PROMOTED}")
        vm.umount()
    bucket = server.directory / BUCKET
    wrong = compare(saved, through_nfs, bucket)
    manifests = sorted((bucket / ".spillway" / "checkpoints").rglob("*.json"))
    print("\nmanifests:", *(path.relative_to(bucket) for path in manifests), sep="\n  ", end="\n\n")
    done = {
        "drained": drained,
        "durable": durable,
        "kept": kept,
        "evicted": evicted,
        "promoted": promoted,
        "manifests": len(manifests) == 2,
    }
    if wrong or len(saved) != RANKS or not all(done.values()):
        say(f"FAILED: {wrong} files differ, {done}")
        return 1
    say("every byte is the same on the client, through NFS and in the bucket")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="let all of it run until Ctrl-C")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spillway-demo-") as directory, ExitStack() as stack:
        return demo(Path(directory), stack, args.keep)


if __name__ == "__main__":
    sys.exit(main())
