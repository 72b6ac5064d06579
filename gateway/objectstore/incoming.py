"""Reads the body of an answer piece by piece, into buffers of the caller."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from typing import Self

from botocore.exceptions import ConnectionClosedError, ReadTimeoutError, SSLError


@contextmanager
def named(address: str) -> Iterator[None]:
    """Raise botocore's errors in place of those of an open connection."""
    try:
        yield
    except TimeoutError as exc:
        raise ReadTimeoutError(endpoint_url=address, error=exc) from exc
    except ssl.SSLError as exc:
        raise SSLError(endpoint_url=address, error=exc) from exc
    except (OSError, HTTPException) as exc:
        raise ConnectionClosedError(endpoint_url=address, error=exc) from exc


class Incoming:
    """An answer whose body is read as it comes. It is a context manager.

    Parameters: found, the answer; address, for errors; on_end, called once with whether the
    connection can be used again.
    """

    def __init__(self, found: HTTPResponse, address: str, on_end: Callable[[bool], None]) -> None:
        self.status = found.status
        self.headers = {name.lower(): value for name, value in found.headers.items()}
        """Names in lower case."""
        self._found = found
        self._left = found.length
        self._address = address
        self._on_end = on_end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._on_end(error[0] is None and self._found.isclosed())

    def readinto(self, buffer: memoryview) -> int:
        """Fill a buffer with the next bytes of the body. Returns their number, which is smaller
        than the buffer only at the end of the body.

        Raises botocore's ConnectionError or HTTPClientError, also when the body ends early.
        """
        with named(self._address):
            count = 0
            while count < len(buffer) and (more := self._found.readinto(buffer[count:])):
                count += more
            if self._left is not None:
                self._left -= count
                if count < len(buffer) and self._left:
                    raise HTTPException("the body ended early")
        return count
