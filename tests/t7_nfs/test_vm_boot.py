"""Tests the virtual NFS client itself, without an NFS server."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.vm.build import Image, build_image
from tests.support.vm.client import ClientError, ClientVm

REPOSITORY = Path(__file__).parents[2]
IMAGES = REPOSITORY / "build/vm"


@pytest.fixture(scope="module")
def image() -> Image:
    return build_image(IMAGES)


@pytest.fixture(scope="module")
def vm(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientVm]:
    console_log = tmp_path_factory.mktemp("vm") / "console.log"
    with ClientVm.boot(image, console_log=console_log, hostname="alice") as booted:
        yield booted


def test_a_finished_image_is_used_again(image: Image) -> None:
    made = image.initramfs.stat().st_mtime_ns
    assert build_image(IMAGES) == image
    assert image.initramfs.stat().st_mtime_ns == made


def test_runs_the_packaged_kernel_with_the_nfs_client(vm: ClientVm, image: Image) -> None:
    assert vm.run("uname -r").stdout.strip() == image.release
    assert vm.run(["hostname"]).stdout == "alice\n"
    modules = {line.split()[0] for line in vm.run("cat /proc/modules").stdout.splitlines()}
    assert "nfsv4" in modules
    assert "nfs4" in vm.run("cat /proc/filesystems").stdout.split()


def test_clock_agrees_with_the_host(vm: ClientVm) -> None:
    before = time.time()
    guest = float(vm.run("date +%s.%N").stdout)
    assert before - 2 < guest < time.time() + 2


def test_exit_status_and_output_streams(vm: ClientVm) -> None:
    done = vm.run("echo out; echo err >&2; exit 3", check=False)
    assert (done.exit_status, done.stdout, done.stderr) == (3, "out\n", "err\n")
    assert not done.timed_out
    with pytest.raises(ClientError, match=r"(?s)exit status 3.*stderr:\nwhy"):
        vm.run("echo why >&2; exit 3")
    assert vm.run("kill -TERM $$", check=False).exit_status == -signal.SIGTERM
    assert vm.run(["/no/such/program"], check=False).exit_status == 127


def test_input_environment_and_odd_bytes(vm: ClientVm) -> None:
    done = vm.run('printf "%s|" "$WHO"; cat', env={"WHO": "bob"}, stdin="\udcff\0é")
    assert done.stdout == "bob|\udcff\0é"


def test_too_much_output_is_an_error(vm: ClientVm) -> None:
    done = vm.run("head -c 5000000 /dev/zero", check=False)
    assert done.truncated
    assert len(done.stdout) == 4 * 1024 * 1024
    with pytest.raises(ClientError, match="too much output"):
        vm.run("head -c 5000000 /dev/zero")


def test_time_out_kills_the_whole_process_group(vm: ClientVm) -> None:
    done = vm.run("echo before; sleep 600 & wait", timeout_seconds=5, check=False)
    assert done.timed_out
    assert (done.exit_status, done.stdout) == (-signal.SIGKILL, "before\n")
    vm.run("while busybox pidof sleep; do busybox usleep 50000; done", timeout_seconds=10)
    with pytest.raises(ClientError, match="timed out after 1 s"):
        vm.run("sleep 600", timeout_seconds=1)


def test_commands_run_at_once(vm: ClientVm) -> None:
    waiting = vm.start("while [ ! -e /tmp/go ]; do busybox usleep 50000; done; echo went")
    vm.run("true")
    assert not waiting.done
    with pytest.raises(ClientError, match="no answer in 0"):
        waiting.wait(0)
    vm.run("touch /tmp/go")
    assert waiting.wait().stdout == "went\n"
    assert waiting.done


def test_the_host_is_readable_and_safe(vm: ClientVm) -> None:
    path = Path("/etc/debian_version")
    assert vm.run(["cat", str(path)]).stdout == path.read_text()
    vm.run(["rm", str(path)])
    assert path.exists()
    vm.run("echo 1 > /mnt/file && echo 1 > /tmp/file && echo 1 > /dev/shm/file")


def test_an_unreachable_server_is_reported(vm: ClientVm) -> None:
    with pytest.raises(ClientError, match="Connection refused"):
        vm.mount(1)


def test_power_cut_beside_a_running_client(vm: ClientVm, image: Image, tmp_path: Path) -> None:
    with ClientVm.boot(image, console_log=tmp_path / "console.log") as other:
        assert other.run("hostname").stdout != "alice\n"
        running = other.start("sleep 600")
        other.kill()
        with pytest.raises(ClientError, match="the client died"):
            running.wait()
        with pytest.raises(ClientError, match="the client is dead"):
            other.run("true")
        assert not Path(f"/proc/{other.pid}").exists()
    assert vm.run("echo alive").stdout == "alive\n"


def test_failed_boot_shows_the_console(image: Image, tmp_path: Path) -> None:
    broken = Image(image.kernel, image.kernel, image.release)
    with pytest.raises(ClientError, match=r"(?s)exited with 0.*Kernel panic"):
        ClientVm.boot(broken, console_log=tmp_path / "console.log")


def test_boot_deadline(image: Image, tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="did not boot in time"):
        ClientVm.boot(image, console_log=tmp_path / "console.log", deadline_seconds=0.5)


def test_dies_with_its_parent(tmp_path: Path) -> None:
    parent = f"""
import os, pathlib, signal, threading
from tests.support.vm.build import build_image
from tests.support.vm.client import ClientVm
def boot():
    vm = ClientVm.boot(build_image(pathlib.Path({str(IMAGES)!r})),
                       console_log=pathlib.Path({str(tmp_path / "console.log")!r}))
    print(vm.pid, vm.run("echo up").stdout, flush=True)
booting = threading.Thread(target=boot)
booting.start()
booting.join()
os.kill(os.getpid(), signal.SIGKILL)
"""
    died = subprocess.run(
        [sys.executable, "-c", parent],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL
    pid, up = died.stdout.split()
    assert up == "up"
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, "qemu outlived its parent"
        time.sleep(0.05)
