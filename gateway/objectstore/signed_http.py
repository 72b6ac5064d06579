"""Signed requests for object bytes: PutObject, UploadPart and GetObject without botocore's client.

The client spends much more processor time on such a request (validation, endpoint rules, events,
parsing). These are nearly all requests of the gateway. Errors are those of the client.

Requests are signed with AWS Signature Version 4, in headers. botocore's signer gives the same
signatures (a test compares them), but takes much more processor time: it builds a request of its
own twice, and derives the key again each time. Source: Amazon S3 API Reference, "Authenticating
Requests (AWS Signature Version 4)".
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

if TYPE_CHECKING:
    from botocore.credentials import ReadOnlyCredentials
import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from botocore.exceptions import ClientError, HTTPClientError, NoCredentialsError
from botocore.exceptions import ConnectionError as BotoConnectionError
from botocore.parsers import create_parser
from botocore.utils import percent_encode

from gateway.common import clock
from gateway.config.settings import Settings
from gateway.objectstore.bodies import Body, Incoming, digest
from gateway.objectstore.checksums import BodyChecksums, ChecksumKind
from gateway.objectstore.pace import TIMED_OUT, Gate, Goes, RequestEnd, always, ended
from gateway.objectstore.transport import Response, Timeouts, Transport

if TYPE_CHECKING:
    from botocore.session import Session

UNSIGNED = "UNSIGNED-PAYLOAD"
"""Stands in place of the SHA-256 of a body that TLS protects."""


class SignedRequest(NamedTuple):
    """The parts of a request that are signed."""

    method: str
    host: str
    """Host, with the port unless it is the default of the scheme."""
    path: str
    """Path, percent-encoded as it is sent."""
    query: str
    """Result of query()."""
    headers: Mapping[str, str]
    """Headers without Host. All of them are signed."""
    sha256: str
    """SHA-256 of the body, in hex, or UNSIGNED."""


def canonical_query(parameters: Mapping[str, str]) -> str:
    """Return the query string, in the only form that can be signed."""
    pairs = sorted(
        (quote(name, safe=""), quote(value, safe="")) for name, value in parameters.items()
    )
    return "&".join(f"{name}={value}" for name, value in pairs)


def sign(
    request: SignedRequest, credentials: ReadOnlyCredentials, region: str, at: float
) -> dict[str, str]:
    """Return the headers to send beside the request's own.

    Args:
        at: the time in seconds since 1970.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at))
    day = stamp[:8]
    added = {"X-Amz-Date": stamp, "X-Amz-Content-SHA256": request.sha256}
    if credentials.token:
        added["X-Amz-Security-Token"] = credentials.token
    signed = {"host": request.host}
    for headers in (request.headers, added):
        signed.update((name.lower(), " ".join(value.split())) for name, value in headers.items())
    names = sorted(signed)
    lines = [request.method, request.path, request.query]
    lines += [f"{name}:{signed[name]}" for name in names]
    lines += ["", ";".join(names), request.sha256]
    canonical = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    scope = f"{day}/{region}/s3/aws4_request"
    to_sign = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{canonical}"
    signature = hmac.digest(_key(credentials.secret_key, day, region), to_sign.encode(), "sha256")
    added["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, "
        f"SignedHeaders={';'.join(names)}, Signature={signature.hex()}"
    )
    return added


@lru_cache(maxsize=2)
def _key(secret_key: str, day: str, region: str) -> bytes:
    key = f"AWS4{secret_key}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


log = logging.getLogger("drain")

EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"""The hash of an empty body."""
ERROR_BYTES = 65536
"""The most that is read of an answer that tells an error."""


class StoredBody(NamedTuple):
    """A body that the store took."""

    digests: BodyChecksums
    headers: dict[str, str]
    """Headers of the answer, with names in lower case."""
    is_repeated: bool
    """Whether an earlier try got no answer. The store may carry it out after this one."""


class SignedHttpClient:
    """Sends bodies to one bucket. It is safe to use from several threads.

    Args:
        session: for credentials.
        address: the URL of the bucket's objects up to their keys.
        attempts: how often to try when a connection fails.
        pace: what every request passes.
        ca_bundle: a file of certificates (empty: the usual ones).
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
        kind: ChecksumKind,
        also: Collection[ChecksumKind] = (),
        goes_first: Goes = always,
    ) -> StoredBody:
        """Send a body.

        Over plain HTTP the signature covers the body too (S3 asks for it); over TLS its checksum
        does. Raises ClientError, BotoCoreError, DataFileError.

        Args:
            headers: which may hold another checksum than the body's.
            kind: kind of the checksum that goes with it.
            also: other checksums that the caller wants to know.
            goes_first: for the pace.
        """
        digests = digest(body, {kind, *also}, with_sha256=not self._is_tls)
        signed = SignedRequest(
            "PUT",
            self._transport.host,
            self._path(key),
            canonical_query(query),
            {
                kind.header: digests.header(kind),
                **headers,
                "Content-Length": str(len(body)),
            },
            digests.sha256 or UNSIGNED,
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
        return StoredBody(digests, answer.headers, is_repeated)

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

        Raises ClientError, BotoCoreError, also when the connection fails while the caller reads.

        Args:
            size: size of the bytes that are asked for, and goes_first, for the pace.
        """
        request = SignedRequest(
            "GET",
            self._transport.host,
            self._path(key),
            canonical_query(query),
            headers,
            EMPTY_SHA256,
        )
        if self._pace is not None:
            self._pace.admit(size, goes_first)
        number = 0 if self._pace is None else self._pace.begin(goes_first)
        how = RequestEnd(False, taken_bytes=size)
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
            how = RequestEnd(timed_out, is_lost=not timed_out)
            raise
        finally:
            if self._pace is not None:
                self._pace.end(number, how)

    def _received(self, request: SignedRequest) -> Incoming:
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

    def _signed(self, request: SignedRequest) -> tuple[str, dict[str, str]]:
        """Return the target and the headers of a request that is sent now."""
        added = sign(request, self._credentials(), self._region, clock.now_ns() / clock.NS)
        target = f"{request.path}?{request.query}" if request.query else request.path
        return target, {**request.headers, **added}

    def _send(self, request: SignedRequest, body: Body, goes_first: Goes) -> Response:
        pace = self._pace
        if pace is None:
            return self._transport.send(request.method, *self._signed(request), body)
        number = pace.begin(goes_first)
        how = RequestEnd(False, is_lost=True)
        try:
            # It is signed when it has its place: behind large parts it may wait for one for longer
            # than the 15 minutes for which a signature is taken.
            target, headers = self._signed(request)
            answer = self._transport.send(request.method, target, headers, body)
            how = ended(answer.status, answer.headers, len(body))
        except TIMED_OUT:
            how = RequestEnd(True)
            raise
        finally:
            pace.end(number, how)
        return answer

    def _credentials(self) -> Any:
        credentials = self._session.get_credentials()
        if credentials is None:
            raise NoCredentialsError
        return credentials.get_frozen_credentials()
