"""Sends PutObject, UploadPart and GetObject without botocore's client.

The client spends much more processor time on such a request (validation, endpoint rules, events,
parsing). These are nearly all requests of the gateway. Errors are those of the client.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from botocore.exceptions import ClientError, HTTPClientError, NoCredentialsError
from botocore.exceptions import ConnectionError as BotoConnectionError
from botocore.parsers import create_parser
from botocore.utils import percent_encode

from gateway import clock
from gateway.objectstore import signing
from gateway.objectstore.body import Body, digest
from gateway.objectstore.checksums import Digests, Kind
from gateway.objectstore.incoming import Incoming
from gateway.objectstore.pace import TIMED_OUT, Ended, Gate, Goes, always, ended
from gateway.objectstore.transport import Response, Timeouts, Transport
from gateway.settings import Settings

if TYPE_CHECKING:
    from botocore.session import Session

log = logging.getLogger("drain")

EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"""The hash of an empty body."""
ERROR_BYTES = 65536
"""The most that is read of an answer that tells an error."""


class Put(NamedTuple):
    """A body that the store took."""

    digests: Digests
    headers: dict[str, str]
    """Headers of the answer, with names in lower case."""
    is_repeated: bool
    """Whether an earlier try got no answer. The store may carry it out after this one."""


class Wire:
    """Sends bodies to one bucket. It is safe to use from several threads.

    Parameters: settings; session, for credentials; address, the URL of the bucket's objects up to
    their keys; attempts, how often to try when a connection fails; pace, what every request passes;
    ca_bundle, a file of certificates (empty: the usual ones).
    """

    def __init__(
        self,
        settings: Settings,
        session: Session,
        address: str,
        attempts: int,
        pace: Gate | None,
        ca_bundle: str,
    ) -> None:
        bucket = settings.bucket
        self._session = session
        self._region = bucket.region
        self._attempts = attempts
        self._pace = pace
        to = urlsplit(address)
        self._above = to.path
        self._is_tls = to.scheme == "https"
        self._parser: Any = create_parser("rest-xml")
        timeouts = Timeouts(bucket.connect_timeout_seconds, bucket.read_timeout_seconds)
        origin = f"{to.scheme}://{to.netloc}"
        self._transport = Transport(origin, ca_bundle, timeouts)

    def put(
        self,
        operation: str,
        key: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: Body,
        kind: Kind,
        also: Collection[Kind] = (),
        goes_first: Goes = always,
    ) -> Put:
        """Send a body.

        Over plain HTTP the signature covers the body too (S3 asks for it); over TLS its
        checksum does. Parameters: headers, which may hold another checksum than the body's; kind,
        of the checksum that goes with it; also, other checksums that the caller wants to know;
        goes_first, for the pace.
        Raises ClientError, BotoCoreError, DataFileError.
        """
        digests = digest(body, {kind, *also}, with_sha256=not self._is_tls)
        signed = signing.Request(
            "PUT",
            self._transport.host,
            self._path(key),
            signing.query(query),
            {
                kind.header: digests.header(kind),
                **headers,
                "Content-Length": str(len(body)),
            },
            digests.sha256 or signing.UNSIGNED,
        )
        for attempt in range(1, self._attempts + 1):
            is_repeated = attempt > 1
            if self._pace is not None:
                # The request waits before it is signed: a signature must not grow old.
                self._pace.admit(len(body), goes_first)
            try:
                answer = self._send(signed, body, goes_first)
            except (HTTPClientError, BotoConnectionError) as exc:
                # A connection that was idle for too long fails like this.
                if attempt == self._attempts:
                    raise
                log.info("%s: no answer, the request is repeated: %s", key, exc)
            else:
                break
        if answer.status >= 300:
            raise self._refusal(operation, *answer, repeats=attempt - 1)
        return Put(digests, answer.headers, is_repeated)

    @contextmanager
    def get(
        self,
        key: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        size: int,
        goes_first: Goes = always,
    ) -> Iterator[Incoming]:
        """Ask for an object, or for a range of it. Its bytes are read inside of the context.

        Parameters: size, of the bytes that are asked for, and goes_first, for the pace. Raises
        ClientError, BotoCoreError, also when the connection fails while the caller reads.
        """
        request = signing.Request(
            "GET",
            self._transport.host,
            self._path(key),
            signing.query(query),
            headers,
            EMPTY_SHA256,
        )
        if self._pace is not None:
            self._pace.admit(size, goes_first)
        number = 0 if self._pace is None else self._pace.begin(goes_first)
        how = Ended(False, taken_bytes=size)
        try:
            with self._received(request) as incoming:
                if incoming.status >= 300:
                    how = ended(incoming.status, incoming.headers, 0)
                    text = memoryview(bytearray(ERROR_BYTES))
                    content = bytes(text[: incoming.readinto(text)])
                    raise self._refusal("GetObject", incoming.status, incoming.headers, content)
                how = how._replace(status=incoming.status)
                yield incoming
        except (HTTPClientError, BotoConnectionError) as exc:
            timed_out = isinstance(exc, TIMED_OUT)
            how = Ended(timed_out, is_lost=not timed_out)
            raise
        finally:
            if self._pace is not None:
                self._pace.end(number, how)

    def _received(self, request: signing.Request) -> Incoming:
        for _ in range(1, self._attempts):
            try:
                return self._transport.receive(*self._signed(request))
            except (HTTPClientError, BotoConnectionError):
                # A connection that was idle for too long fails like this.
                continue
        return self._transport.receive(*self._signed(request))

    def _path(self, key: str) -> str:
        encoded: str = percent_encode(key, safe="/~")
        return self._above + encoded

    def _refusal(
        self,
        operation: str,
        status: int,
        headers: Mapping[str, str],
        content: bytes,
        repeats: int = 0,
    ) -> ClientError:
        answer = {"status_code": status, "headers": headers, "body": content}
        parsed = self._parser.parse(answer, None)
        # As botocore does it.
        parsed["ResponseMetadata"]["RetryAttempts"] = repeats
        return ClientError(parsed, operation)

    def _signed(self, request: signing.Request) -> tuple[str, dict[str, str]]:
        """Return the target and the headers of a request that is sent now."""
        added = signing.sign(request, self._credentials(), self._region, clock.now_ns() / clock.NS)
        target = f"{request.path}?{request.query}" if request.query else request.path
        return target, {**request.headers, **added}

    def _send(self, request: signing.Request, body: Body, goes_first: Goes) -> Response:
        pace = self._pace
        if pace is None:
            return self._transport.send(request.method, *self._signed(request), body)
        number = pace.begin(goes_first)
        how = Ended(False, is_lost=True)
        try:
            # It is signed when it has its place: behind large parts it may wait for one for longer
            # than the 15 minutes for which a signature is taken.
            target, headers = self._signed(request)
            answer = self._transport.send(request.method, target, headers, body)
            how = ended(answer.status, answer.headers, len(body))
        except TIMED_OUT:
            how = Ended(True)
            raise
        finally:
            pace.end(number, how)
        return answer

    def _credentials(self) -> Any:
        found = self._session.get_credentials()
        if found is None:
            raise NoCredentialsError
        return found.get_frozen_credentials()
