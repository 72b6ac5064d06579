"""What a person without a token does to keep others out.

``python -m tests.support.t10.crowd PORT``, with ``tls`` over TLS.

It opens IDLE connections that say nothing and SLOW requests whose body hardly comes, and asks LOOPS
at a time for a login. Whatever is closed is opened again. A line says that all of it is under way.
"""

from __future__ import annotations

import asyncio
import resource
import ssl
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

IDLE = 1000
SLOW = 100
LOOPS = 100
PAUSE_SECONDS = 0.2
"""Between two connections in one's place: the crowd must not need the processor that it denies."""
HEAD = "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n{}\r\n"
FORM = "Content-Type: application/x-www-form-urlencoded\r\n"
WRONG = b"token=spw_wrong"

_Act = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def idle(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD.format(1000, FORM).encode())
    while not reader.at_eof():
        writer.write(b"a")
        await writer.drain()
        await asyncio.sleep(PAUSE_SECONDS)


async def loop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(HEAD.format(len(WRONG), FORM).encode() + WRONG)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = head.partition("content-length:")[2].partition("\r")[0]
        await reader.readexactly(int(length or 0))


async def again(
    port: int, tls: ssl.SSLContext | None, act: _Act, opened: asyncio.Semaphore
) -> None:
    """Act on one connection after the other."""
    is_over_tls = tls if act is not idle else None  # nothing is said, not even for TLS
    while True:
        with suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=is_over_tls)
            opened.release()
            with suppress(OSError, asyncio.IncompleteReadError):
                await act(reader, writer)
            writer.close()
        await asyncio.sleep(PAUSE_SECONDS)


async def main(port: int, tls: ssl.SSLContext | None) -> None:
    opened = asyncio.Semaphore(0)
    acts = [idle] * IDLE + [slow] * SLOW + [loop] * LOOPS
    tasks = [asyncio.create_task(again(port, tls, act, opened)) for act in acts]
    for _ in tasks:
        await opened.acquire()
    print("under way", flush=True)
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    asyncio.run(main(int(sys.argv[1]), context if "tls" in sys.argv else None))
