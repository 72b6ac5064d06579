"""PutObject and UploadPart, signed and carried by botocore's own parts, without its client.

The client spends two to three times the processor time on such a request (validation, endpoint
rules, events, parsing), and these two are nearly all requests the drain makes. Errors are those
the client raises.
"""

from __future__ import annotations

import base64
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError, HTTPClientError, NoCredentialsError
from botocore.exceptions import ConnectionError as BotoConnectionError
from botocore.httpsession import URLLib3Session
from botocore.parsers import create_parser
from botocore.utils import get_environ_proxies, percent_encode

from gateway.config import Settings
from gateway.errors import DataFileError
from gateway.objectstore.body import Body, Digests, blocks, digest
from gateway.objectstore.pace import TIMED_OUT, Ended, Gate, ended

if TYPE_CHECKING:
    from botocore.session import Session
    from mypy_boto3_s3.client import S3Client

# Without NODELAY each request waits for the acknowledgement of its own headers (40 ms).
_SOCKET_OPTIONS = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
]
_UNSIGNED = "UNSIGNED-PAYLOAD"


class _Signer(S3SigV4Auth):
    """Takes the digest of the body as given instead of reading the body for it."""

    def payload(self, request: Any) -> str:
        digest: str = request.context["sha256"]
        return digest


class Wire:
    """Sends bodies to one bucket. Safe to use from several threads.

    Parameters: settings; session, for credentials; made, the client, for the bucket's address;
    connections, how many to keep open; attempts, how often to try when a connection fails; pace,
    what every request passes.
    """

    def __init__(
        self,
        settings: Settings,
        session: Session,
        made: S3Client,
        connections: int,
        attempts: int,
        pace: Gate | None,
    ) -> None:
        bucket = settings.bucket
        self._session = session
        self._region = bucket.region
        self._attempts = attempts
        self._pace = pace
        probe = made.generate_presigned_url(
            "put_object", Params={"Bucket": bucket.name, "Key": "k"}
        )
        self._base = probe.partition("?")[0].removesuffix("k")
        self._is_tls = self._base.startswith("https:")
        self._parser: Any = create_parser("rest-xml")
        transport: Any = URLLib3Session
        self._http = transport(
            verify=bucket.ca_bundle or True,
            proxies=get_environ_proxies(self._base),
            timeout=(bucket.connect_timeout_seconds, bucket.read_timeout_seconds),
            max_pool_connections=connections,
            socket_options=_SOCKET_OPTIONS,
        )

    def put(
        self,
        operation: str,
        key: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: Body,
    ) -> tuple[Digests, dict[str, str]]:
        """Send a body; returns its digests and the headers of the answer, in lower case.

        Over plain HTTP the signature covers the body too (S3 asks for it); over TLS its
        Content-MD5 does. Raises ClientError, BotoCoreError, DataFileError.
        """
        digests = digest(body, with_sha256=not self._is_tls)
        url = self._base + percent_encode(key, safe="/~")
        for attempt in range(1, self._attempts + 1):
            if self._pace is not None:
                # Before it is signed: a signature must not grow old while it waits.
                self._pace.admit(len(body))
            request = AWSRequest(
                "PUT",
                f"{url}?{urlencode(query)}" if query else url,
                headers={
                    **headers,
                    "Content-MD5": base64.b64encode(digests.md5).decode(),
                    "Content-Length": str(len(body)),
                },
                data=blocks(body) if len(body) else b"",
            )
            request.context["sha256"] = digests.sha256 or _UNSIGNED
            _Signer(self._credentials(), "s3", self._region).add_auth(request)
            try:
                answer = self._send(request.prepare(), len(body))
            except (HTTPClientError, BotoConnectionError) as exc:
                cause = exc.kwargs.get("error")
                if isinstance(cause, DataFileError):
                    raise cause from None
                # A connection that was idle for too long looks like this.
                if attempt == self._attempts:
                    raise
            else:
                break
        content = answer.content
        if answer.status_code >= 300:
            parsed = self._parser.parse(
                {"status_code": answer.status_code, "headers": answer.headers, "body": content},
                None,
            )
            raise ClientError(parsed, operation)
        return digests, {name.lower(): value for name, value in answer.headers.items()}

    def _send(self, prepared: Any, body_bytes: int) -> Any:
        pace = self._pace
        if pace is None:
            return self._http.send(prepared)
        number = pace.begin()
        how = Ended(False, is_lost=True)
        try:
            answer = self._http.send(prepared)
            how = ended(answer.status_code, answer.headers, body_bytes)
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
