"""Tests what the gateway's own processes make of an answer of the NFS server that is none."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gateway.common.errors import ControlSocketClosed
from gateway.db.models import ROOT_INO
from gateway.rpc import frames
from gateway.rpc.control import SOCKET, Remote
from gateway.rpc.frames import Op, RpcRequest
from tests.support.volumes import make_settings

HEAD = struct.Struct("=IHHIIQ")
ANOTHER_VERSION = r"of another version \(.*\): restart it"
LONGEST = frames.ANSWER_BYTES + frames.DATA_BYTES


def made(
    magic: int = frames.MAGIC,
    version: int = frames.VERSION,
    says: int = frames.ANSWER_BYTES,
    number: int = 0,
) -> bytes:
    """Return an answer without data.

    Args:
        says: its length as the head has it.
    """
    head = HEAD.pack(magic, version, Op.GETATTR, says, 0, number)
    return head + bytes(frames.ANSWER_BYTES - HEAD.size)


@contextmanager
def answering(directory: Path, answer: bytes) -> Iterator[Remote]:
    """Listen as the NFS server does, and send bytes and no more after the first request. Yield a
    client."""
    settings = make_settings(directory)
    settings.run_dir.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(settings.run_dir / SOCKET))
        listener.listen()
        with closing(Remote(settings, seconds=20.0)) as control:
            connection, _ = listener.accept()

            def serve() -> None:
                connection.recv(frames.FRAME_BYTES)
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)

            server = threading.Thread(target=serve)
            server.start()
            with connection:
                yield control
                server.join()


def ask(control: Remote) -> frames.RpcReply:
    [answer] = control.run([RpcRequest(Op.GETATTR, ROOT_INO)])
    return answer


def test_an_answer_is_believed(tmp_path: Path) -> None:
    with answering(tmp_path, made()) as control:
        assert ask(control) == frames.RpcReply(0, None)


@pytest.mark.parametrize(
    "answer",
    [
        made(magic=frames.MAGIC + 1),
        made(version=frames.VERSION + 1),
        made(version=0),
        made(says=frames.ANSWER_BYTES - 1),
        made(says=LONGEST + 1),
        made(says=0),
        made(says=2**32 - 1),
        made(number=1),
        made(number=2**64 - 1),
        bytes(frames.ANSWER_BYTES),
        b"HTTP/1.1 400 Bad Request\r\n\r\n" * 20,
    ],
)
def test_rubbish_is_no_answer(tmp_path: Path, answer: bytes) -> None:
    with (
        answering(tmp_path, answer) as control,
        pytest.raises(ControlSocketClosed, match=ANOTHER_VERSION),
    ):
        ask(control)


def test_random_bytes_are_no_answer() -> None:
    generator = random.Random(14)
    for _ in range(10_000):
        frame = generator.randbytes(frames.ANSWER_BYTES)
        with pytest.raises(frames.Rubbish):
            frames.data_bytes(frame)
        # What has a right head is an answer, whatever its values are.
        count_bytes = generator.randrange(frames.DATA_BYTES)
        frame = made(says=frames.ANSWER_BYTES + count_bytes)[: HEAD.size] + frame[HEAD.size :]
        assert frames.data_bytes(frame) == count_bytes
        number, _answer = frames.decode(frame, b"")
        assert number == 0


@pytest.mark.parametrize("length", [0, 1, HEAD.size, frames.ANSWER_BYTES - 1])
def test_half_an_answer_is_no_answer(tmp_path: Path, length: int) -> None:
    with (
        answering(tmp_path, made()[:length]) as control,
        pytest.raises(ControlSocketClosed, match="went away: it closed the connection"),
    ):
        ask(control)
