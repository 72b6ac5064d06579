"""Agent inside the virtual client: runs commands on behalf of the tests on the host.

This file owns the guest's process 1, once the initramfs is done, and the protocol spoken with
``client.py``. It is copied into the initramfs, so it uses nothing but the standard library.

The agent connects to the host and sends one line, ``{"token": ...}``. From then on each line from
the host is a request ``{id, script, arguments, env, stdin, timeout_seconds}`` to run a shell script
with arguments, and each line to the host an answer ``{id, exit_status, stdout, stderr, timed_out,
truncated}``, in order of completion. All strings are UTF-8 with surrogate escapes, so arbitrary
bytes survive.

The agent itself never touches an NFS mount: a command that hangs in the kernel for good costs one
thread, and the host still gets its answer. This is why every command goes through /bin/sh: while a
child of the agent executes a program, the whole agent waits.

``agent.py mount SOURCE TARGET TYPE OPTIONS`` and ``agent.py umount TARGET`` make just that system
call, so that a guest needs no mount helper of any file system.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from typing import IO, Any

OUTPUT_LIMIT_BYTES = 4 * 1024 * 1024
KILL_GRACE_SECONDS = 2.0
REBOOT = 0x01234567  # LINUX_REBOOT_CMD_RESTART; qemu runs with -no-reboot, so it exits.
HOST = "10.0.2.2"
ENVIRONMENT = {
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}

libc = ctypes.CDLL(None, use_errno=True)


def execute(request: dict[str, Any]) -> dict[str, Any]:
    """Run one request's command to its end or its time-out and return the answer, without id.

    Output goes to files in /run (memory) rather than to pipes: a background child that keeps
    its parent's standard output open must not delay the answer. A command whose output fills
    /run gets ENOSPC; of each stream the first ``OUTPUT_LIMIT_BYTES`` are returned.

    The command leads its own session and process group. On time-out the whole group is killed
    and the exit status is -9, even if the command hangs in the kernel and survives for now.
    """
    with (
        tempfile.TemporaryFile(dir="/run") as stdin,
        tempfile.TemporaryFile(dir="/run") as stdout,
        tempfile.TemporaryFile(dir="/run") as stderr,
    ):
        stdin.write(request["stdin"].encode(errors="surrogateescape"))
        stdin.seek(0)
        timed_out = False
        command = subprocess.Popen(
            ["/bin/sh", "-c", request["script"], "sh", *request["arguments"]],
            env=ENVIRONMENT | request["env"],
            cwd="/",
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            exit_status = command.wait(request["timeout_seconds"])
        except subprocess.TimeoutExpired:
            timed_out = True
            exit_status = -signal.SIGKILL
            with suppress(ProcessLookupError):
                os.killpg(command.pid, signal.SIGKILL)
            # Output written up to here is part of the answer, so let the command end first.
            with suppress(subprocess.TimeoutExpired):
                command.wait(KILL_GRACE_SECONDS)
        texts = {"stdout": read_text(stdout), "stderr": read_text(stderr)}
        truncated = any(
            os.fstat(stream.fileno()).st_size > OUTPUT_LIMIT_BYTES for stream in (stdout, stderr)
        )
    return {"exit_status": exit_status, "timed_out": timed_out, "truncated": truncated, **texts}


def read_text(stream: IO[bytes]) -> str:
    """Return the first ``OUTPUT_LIMIT_BYTES`` of a file that another process may be writing to."""
    return os.pread(stream.fileno(), OUTPUT_LIMIT_BYTES, 0).decode(errors="surrogateescape")


def serve(port: int, token: str) -> None:
    """Answer the host's requests, each in its own thread, until the host hangs up."""
    sending = threading.Lock()
    with socket.create_connection((HOST, port)) as connection, connection.makefile("rb") as lines:

        def send(message: dict[str, Any]) -> None:
            with sending:
                connection.sendall(json.dumps(message).encode() + b"\n")

        def answer(request: dict[str, Any]) -> None:
            try:
                result = execute(request)
            except Exception as error:  # An unanswered request would leave the host waiting.
                result = {
                    "exit_status": 127,
                    "stdout": "",
                    "stderr": f"agent: {error!r}\n",
                    "timed_out": False,
                    "truncated": False,
                }
            with suppress(OSError):
                send({"id": request["id"], **result})

        send({"token": token})
        for line in lines:
            threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()


def supervise(port: int, token: str) -> None:
    """Serve the host from a child process and, as process 1, reap orphans until it ends."""
    child = os.fork()
    if child == 0:
        serve(port, token)
        os._exit(0)
    while os.wait()[0] != child:
        pass
    # The host is gone, so there is nothing to serve. This does not wait for hung file systems.
    libc.reboot(REBOOT)


def call_mount(source: str, target: str, kind: str, options: str) -> None:
    """Mount ``source`` on ``target``, which is created if missing.

    :param options: the file system's own options, as the kernel takes them.
    :raises OSError: the kernel refused.
    """
    os.makedirs(target, exist_ok=True)  # noqa: PTH103 - importing pathlib costs 0.1 s here.
    if libc.mount(source.encode(), target.encode(), kind.encode(), 0, options.encode()) != 0:
        raise last_error(f"mount {source} on {target}")


def call_umount(target: str) -> None:
    """Unmount ``target``.

    :raises OSError: the kernel refused.
    """
    if libc.umount2(target.encode(), 0) != 0:
        raise last_error(f"umount {target}")


def last_error(operation: str) -> OSError:
    """Make the exception for what the last system call through libc left in errno."""
    number = ctypes.get_errno()
    return OSError(number, f"{operation}: {os.strerror(number)}")


def main(arguments: list[str]) -> None:
    """Make the system call named on the command line, or serve the host as process 1."""
    try:
        match arguments:
            case ["mount", source, target, kind, options]:
                call_mount(source, target, kind, options)
            case ["umount", target]:
                call_umount(target)
            case _:
                # The kernel hands parameters it does not know to process 1 as its environment.
                supervise(int(os.environ["VM_PORT"]), os.environ["VM_TOKEN"])
    except OSError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
