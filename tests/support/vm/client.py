"""Virtual NFS clients for tests: booted under qemu, and driven from the host.

This file owns the qemu process, the host's end of the agent's protocol (see ``agent.py``) and what
tests may do with a client: run commands, mount, drop caches, cut the power.
"""

import itertools
import json
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.support.vm.build import Image

LOOPBACK = "127.0.0.1"
HOST_ADDRESS = "10.0.2.2"  # The host's loopback interface in qemu's user network.
GUEST_ADDRESS = "10.0.2.15"
PROCESSOR = "Nehalem"  # The oldest one that numpy runs on, and the fastest to emulate.
AGENT = ("/usr/bin/python3", "-I", "-S", "/run/vm/agent.py")
BOOT_DEADLINE_SECONDS = 120.0
ACCEPT_POLL_SECONDS = 0.1
GREETING_SECONDS = 5.0
ANSWER_SLACK_SECONDS = 15.0  # For the agent's grace after a kill, and for a busy host.
CLOSE_UMOUNT_SECONDS = 5.0
CONSOLE_TAIL_LINES = 40


class ClientError(RuntimeError):
    """A client did not boot or died, or a command in it failed; the message has the output."""


@dataclass(frozen=True)
class Completed:
    """How a command in the guest ended.

    ``exit_status`` is minus the signal's number if a signal ended the command, 126 or 127 if the
    command could not be started, and -9 if it timed out. ``truncated`` says that the command wrote
    more than 4 MiB to stdout or to stderr, of which the rest is missing. Bytes that are not UTF-8
    are surrogates.
    """

    exit_status: int
    stdout: str
    stderr: str
    timed_out: bool
    truncated: bool


class Command:
    """A command running in the guest. Made by ``ClientVm.start``."""

    def __init__(self, vm: "ClientVm", text: str | Sequence[str], timeout_seconds: float) -> None:
        self._vm = vm
        self._text = text
        self._timeout_seconds = timeout_seconds
        self._answer: Future[Completed] = Future()

    @property
    def done(self) -> bool:
        """Whether ``wait`` returns or raises at once."""
        return self._answer.done()

    def wait(self, timeout_seconds: float | None = None, *, check: bool = True) -> Completed:
        """Wait for the command to end.

        :param timeout_seconds: how long to wait; by default, as long as the command may run.
            The command still runs when this time is over.
        :param check: raise if the command failed, timed out or wrote too much.
        :raises ClientError: see ``check``; or the client died; or the time is over.
        """
        if timeout_seconds is None:
            timeout_seconds = self._timeout_seconds + ANSWER_SLACK_SECONDS
        try:
            completed = self._answer.result(timeout_seconds)
        except TimeoutError:
            raise self._vm.error(f"no answer in {timeout_seconds} s: {self._text!r}") from None
        if check and (completed.exit_status != 0 or completed.truncated):
            raise ClientError(
                f"{self._text!r} failed: exit status {completed.exit_status}"
                + f", timed out after {self._timeout_seconds} s" * completed.timed_out
                + ", too much output" * completed.truncated
                + f"\nstdout:\n{completed.stdout}\nstderr:\n{completed.stderr}"
            )
        return completed

    def settle(self, answer: Completed | ClientError) -> None:
        """Let ``wait`` return or raise ``answer``; only ``ClientVm`` calls this."""
        if isinstance(answer, Completed):
            self._answer.set_result(answer)
        else:
            self._answer.set_exception(answer)


class ClientVm:
    """One virtual machine that acts as an NFSv4 client.

    Its root is the host's: reads see the host's files, writes stay in the guest's memory. The
    guest may not see what the host changes after the boot: pass such files through ``stdin``.
    /dev/shm, /mnt, /run and /tmp are the guest's own. At boot they are empty, except for /run/host,
    which is the host's root.

    Several threads may use one machine. It dies with the process that booted it.
    """

    def __init__(self, console_log: Path) -> None:
        """Use ``ClientVm.boot`` instead."""
        self.console_log = console_log
        self._numbers = itertools.count()
        self._mounted: list[str] = []
        self._lock = threading.Lock()  # Guards _pending, _connection, and writes to the latter.
        self._pending: dict[int, Command] = {}
        self._connection: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._threads: list[threading.Thread] = []

    @classmethod
    def boot(
        cls,
        image: Image,
        *,
        console_log: Path,
        hostname: str | None = None,
        memory_mib: int = 1536,
        cpus: int = 1,
        processor: str = PROCESSOR,
        disk: Path | None = None,
        hardware: Sequence[str] = (),
        deadline_seconds: float = BOOT_DEADLINE_SECONDS,
    ) -> Self:
        """Boot a client and wait until it accepts commands.

        :param console_log: file to be overwritten with the guest's console.
        :param hostname: by default a random one. An NFSv4 server tells clients apart by it: boot
            with the host name of a killed client to show the server that client's reboot.
        :param disk: image of the disk /dev/vda. A kill of the guest loses exactly the bytes that
            the guest did not flush to this disk.
        :param hardware: further options of qemu.
        :raises ClientError: qemu is missing or failed, or the deadline passed; the message ends
            with the tail of the console.
        """
        vm = cls(console_log)
        token = secrets.token_hex(16)
        deadline = time.monotonic() + deadline_seconds
        with socket.create_server((LOOPBACK, 0)) as listener:
            parameters = {
                "console": "ttyS0",
                "no_timer_check": "1",  # On a busy host the check finds no timer, and panics.
                "panic": "-1",  # Restart at once; with -no-reboot qemu exits instead.
                "mitigations": "off",  # Each system call would flush the emulator's page tables.
                "VM_HOSTNAME": hostname or f"client-{token[:8]}",
                "VM_PORT": listener.getsockname()[1],
                "VM_TOKEN": token,
            }
            try:
                machine = ("-cpu", processor, "-smp", str(cpus), "-m", str(memory_mib))
                argv = [*_qemu_argv(image, parameters, machine, disk), *hardware]
                vm._spawn(argv)
                connection = vm._accept(listener, token, deadline)
            except BaseException:
                vm.kill()
                raise
        vm._connection = connection
        vm._start_thread(vm._receive, connection)
        return vm

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The pid of qemu. SIGSTOP silences the client, and the client keeps its state."""
        assert self._process is not None
        return self._process.pid

    def start(
        self,
        command: str | Sequence[str],
        *,
        timeout_seconds: float = 60.0,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
    ) -> Command:
        """Start a command as root in / and return without waiting for it.

        :param command: argument vector, or a string for /bin/sh.
        :param timeout_seconds: after this the command's process group is killed.
        :param env: variables besides HOME, LANG and PATH.
        :raises ClientError: the client is dead.
        """
        script, arguments = (command, []) if isinstance(command, str) else ('exec "$@"', command)
        started = Command(self, command, timeout_seconds)
        number = next(self._numbers)
        request = {
            "id": number,
            "script": script,
            "arguments": list(arguments),
            "env": dict(env or {}),
            "stdin": stdin,
            "timeout_seconds": timeout_seconds,
        }
        with self._lock:
            if self._connection is None:
                raise self.error("the client is dead")
            self._pending[number] = started
            # An error here means that the client has just died, and _receive settles the command.
            with suppress(OSError):
                self._connection.sendall(json.dumps(request).encode() + b"\n")
        return started

    def run(
        self,
        command: str | Sequence[str],
        *,
        timeout_seconds: float = 60.0,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        check: bool = True,
    ) -> Completed:
        """Run a command to its end; parameters as of ``start`` and ``Command.wait``.

        :raises ClientError: the client is dead, or ``check`` is true and the command failed.
        """
        started = self.start(command, timeout_seconds=timeout_seconds, env=env, stdin=stdin)
        return started.wait(check=check)

    def mount(
        self,
        port: int,
        export: str = "/checkpoints",
        target: str = "/mnt/ckpt",
        *,
        version: str = "4.1",
        options: str = "hard,timeo=50,retrans=2",
        address: str = HOST_ADDRESS,
        host: str | None = None,
        security: str = "sys",
        timeout_seconds: float = 30.0,
    ) -> None:
        """Mount an export of an NFS server.

        :param port: the server's TCP port.
        :param target: directory in the guest, created if missing.
        :param version: "4.0", "4.1" or "4.2".
        :param options: further mount options as the kernel's NFS client takes them. Two mounts
            of one export share their caches and options unless "nosharecache" is among them.
        :param address: of the server; by default the host's loopback interface.
        :param host: the server's name, by which Kerberos knows it; by default the address.
        :param security: "sys", "krb5", "krb5i" or "krb5p".
        :raises ClientError: the kernel refused, or gave up on the server, or the time is over.
        """
        fixed = f"addr={address},clientaddr={GUEST_ADDRESS},proto=tcp,sec={security}"
        text = f"vers={version},port={port},{fixed},{options}"
        source = f"{host or address}:{export}"
        self.run([*AGENT, "mount", source, target, "nfs4", text], timeout_seconds=timeout_seconds)
        self._mounted.append(target)

    def mount_disk(self, target: str) -> None:
        """Mount the ext4 on the disk that the machine was booted with.

        :raises ClientError: the kernel refused.
        """
        self.run([*AGENT, "mount", "/dev/vda", target, "ext4", ""])

    def umount(self, target: str = "/mnt/ckpt", *, timeout_seconds: float = 30.0) -> None:
        """Unmount what ``mount`` mounted on ``target``. Dirty data is written back first.

        :raises ClientError: the mount is busy, or the time is over.
        """
        self.run([*AGENT, "umount", target], timeout_seconds=timeout_seconds)
        self._mounted.remove(target)

    def drop_caches(self, *, timeout_seconds: float = 60.0) -> None:
        """Write back all dirty data, then drop cached file contents, names and attributes.

        What an application holds open or mapped stays cached.

        :raises ClientError: the time is over.
        """
        self.run("sync; echo 3 > /proc/sys/vm/drop_caches", timeout_seconds=timeout_seconds)

    def kill(self) -> None:
        """Cut the client's power. Returns when the machine is off.

        The guest cannot write back, unmount or release NFS state any more. Unlike a power cut of
        a real machine, this one closes the client's TCP connections, because the host owns them.
        """
        if self._process is not None:
            self._process.kill()
        for thread in self._threads:
            thread.join()

    def close(self) -> None:
        """Unmount all mounts, each within a few seconds or not at all, and stop the client."""
        with suppress(ClientError):
            for target in reversed(self._mounted.copy()):
                self.umount(target, timeout_seconds=CLOSE_UMOUNT_SECONDS)
        self.kill()

    def error(self, message: str) -> ClientError:
        """Make an error of ``message`` and the tail of the console."""
        lines = self.console_log.read_text(errors="replace").splitlines()[-CONSOLE_TAIL_LINES:]
        return ClientError("\n".join([message, f"{self.console_log} ends:", *lines]))

    def _spawn(self, argv: Sequence[str]) -> None:
        spawned: Future[subprocess.Popen[bytes]] = Future()

        def keep() -> None:
            try:
                with self.console_log.open("wb") as console:
                    process = subprocess.Popen(
                        argv, stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT
                    )
            except OSError as error:
                spawned.set_exception(error)
                return
            spawned.set_result(process)
            process.wait()

        # The kernel sends the parent-death signal when the spawning thread ends. Started by a
        # short-lived thread, the machine would die with it. This thread lives as long as qemu.
        self._start_thread(keep)
        try:
            self._process = spawned.result()
        except OSError as error:
            raise ClientError(f"cannot start qemu: {error}") from error

    def _start_thread(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _accept(self, listener: socket.socket, token: str, deadline: float) -> socket.socket:
        """Wait for the agent's connection, and close the connections of all others."""
        assert self._process is not None
        greeting = json.dumps({"token": token}).encode() + b"\n"
        listener.settimeout(ACCEPT_POLL_SECONDS)
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise self.error(f"the client's qemu exited with {self._process.returncode}")
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            connection.settimeout(GREETING_SECONDS)
            with suppress(OSError), connection.makefile("rb") as lines:
                if lines.readline(len(greeting)) == greeting:
                    connection.settimeout(None)
                    return connection
            connection.close()
        raise self.error("the client did not boot in time")

    def _receive(self, connection: socket.socket) -> None:
        """Settle each command when its answer arrives, and the rest when the client dies."""
        with connection, connection.makefile("rb") as lines, suppress(OSError):
            for line in lines:
                if line.endswith(b"\n"):
                    answer: dict[str, Any] = json.loads(line)
                    with self._lock:
                        command = self._pending.pop(answer.pop("id"))
                    command.settle(Completed(**answer))
        with self._lock:
            self._connection = None
            orphans = list(self._pending.values())
            self._pending.clear()
        for command in orphans:
            command.settle(self.error("the client died"))


def _qemu_argv(
    image: Image,
    parameters: Mapping[str, object],
    machine: Sequence[str],
    disk: Path | None,
) -> list[str]:
    kernel_command_line = " ".join(f"{name}={value}" for name, value in parameters.items())
    root = "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"
    return [
        *("setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64"),
        # Of two emulated processors each waits for the other while the host is busy: the same work
        # takes more than twice the host's time. So a client has one.
        *("-accel", "tcg,thread=multi", *machine),
        *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio"),
        *("-kernel", str(image.kernel), "-initrd", str(image.initramfs)),
        *("-append", kernel_command_line),
        *("-virtfs", root),
        *("-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile="),
        *("-device", "virtio-rng-pci"),
        *(("-drive", f"file={disk},format=raw,if=virtio") if disk is not None else ()),
    ]
