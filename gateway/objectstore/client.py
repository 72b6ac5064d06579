"""Client of the bucket by boto3, and the map of its errors: wait, call a person, or one object.

Credentials never appear in a message: it names a credentials file that cannot be parsed, but does
not quote it.
"""

from __future__ import annotations

import base64
import hashlib
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

import boto3
import botocore.session
from botocore import xform_name
from botocore.config import Config
from botocore.credentials import SharedCredentialProvider
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConfigParseError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    ReadTimeoutError,
    SSLError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError
from botocore.parsers import ResponseParserError
from botocore.utils import parse_timestamp

from gateway.common import network, retry
from gateway.common.errors import (
    ObjectRefused,
    StoreBusy,
    StoreError,
    StoreRefused,
    StoreSlow,
    StoreUnavailable,
    TooLarge,
)
from gateway.config.settings import Settings
from gateway.objectstore.pace import LASTING, Gate
from gateway.objectstore.signed_http import SignedHttpClient

if TYPE_CHECKING:
    from botocore.model import OperationModel
    from mypy_boto3_s3.client import S3Client

ATTEMPTS_MAX = 2
GATEWAY_TIMEOUT = 504
SPARE_CONNECTIONS = 16

_CREDENTIALS = {
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidSecurity",
    "InvalidToken",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
}
_PERMISSION = {"AccessDenied", "AllAccessDisabled", "AccountProblem"}
ARCHIVED = {"InvalidObjectState", "ObjectNotInActiveTierError"}
_QUOTA = {"QuotaExceeded", "EntityTooLargeForQuota", "InsufficientStorage", "507"}
_QUOTA |= {"XMinioAdminBucketQuotaExceeded", "XMinioStorageFull"}
NO_OBJECT = ("404", "NoSuchKey", "NotFound")
_FAILED_CONDITION = ("PreconditionFailed", "412")
_COPIES = ("copy_object", "upload_part_copy")
_TOO_LARGE = {"EntityTooLarge", "413"}
_REGION = {"301", "307", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
_REGION |= {"PermanentRedirect", "TemporaryRedirect"}
_REGION_NAME = re.compile("[a-z0-9]+(-[a-z0-9]+)+")
_BUSY = {"429", "SlowDown", "ServiceUnavailable", "Throttling", "ThrottlingException"}
_BUSY |= {"TooManyRequests", "RequestLimitExceeded"}
_PASSING = {
    "BadDigest",
    "ConditionalRequestConflict",
    "IncompleteBody",
    "OperationAborted",
    "RequestTimeout",
} | _BUSY
OF_ALL_REQUESTS = _CREDENTIALS | _PERMISSION | _QUOTA | _REGION | _PASSING
OF_ALL_REQUESTS |= {"RequestTimeTooSkewed"}
"""Codes that any kind of request can get."""


class FileStamp(NamedTuple):
    """What shows that a file is another one, or was written again."""

    inode: int
    mtime_ns: int
    size: int


def stamp_of(settings: Settings) -> FileStamp | None:
    """Return what the credentials file looks like, or None if there is none to look at."""
    try:
        stat = retry.place(settings.credentials_file).stat()
    except OSError:
        return None
    return FileStamp(stat.st_ino, stat.st_mtime_ns, stat.st_size)


class BucketConnection:
    """The two ways to the bucket, with one set of credentials. Making one contacts no server.

    Without the credentials file, the first request asks boto's own chain (environment, the role of
    the container or the instance).

    Args:
        pace: the limits that every request keeps.
        attempts: how often to try a request.
        address: the URL of the bucket, if a client has told it already.

    Raises:
        StoreRefused: the credentials file or the CA bundle exists but cannot be used.
    """

    def __init__(
        self, settings: Settings, pace: Gate | None, attempts: int, address: str | None = None
    ) -> None:
        self._settings = settings
        self._pace = pace
        self._attempts = attempts
        self._address = address
        # Two threads may want the same at once, and boto3 cannot make two clients at once. Since
        # Python 3.12 cached_property does not hold one of them back.
        self._making = RLock()
        self._wire: SignedHttpClient | None = None
        self._client: S3Client | None = None
        self._session = botocore.session.Session()
        parsers = self._session.get_component("response_parser_factory")
        parsers.set_parser_defaults(timestamp_parser=parsed_time)
        if retry.place(settings.credentials_file).exists():
            _use_credentials(self._session, settings)
        name, self._ca_bundle = "bucket.ca_bundle", settings.bucket.ca_bundle
        if not self._ca_bundle:
            # botocore's client heeds AWS_CA_BUNDLE by itself. Requests with bodies must too.
            name, ca_bundle = "AWS_CA_BUNDLE", self._session.get_config_variable("ca_bundle")
            self._ca_bundle = ca_bundle or ""
        if self._ca_bundle:
            _check_ca_bundle(name, self._ca_bundle)

    @cached_property
    def address(self) -> str:
        """The URL of the bucket's objects, up to their keys."""
        if self._address is not None:
            return self._address
        probe: str = self.client.generate_presigned_url(
            "put_object", Params={"Bucket": self._settings.bucket.name, "Key": "k"}
        )
        return probe.partition("?")[0].removesuffix("k")

    @property
    def wire(self) -> SignedHttpClient:
        """The way of the requests that carry bodies."""
        with self._making:
            if self._wire is None:
                self._wire = self._new_wire()
            return self._wire

    def _new_wire(self) -> SignedHttpClient:
        return SignedHttpClient(
            self._settings,
            self._session,
            self.address,
            self._attempts,
            self._pace,
            self._ca_bundle,
        )

    @property
    def client(self) -> S3Client:
        """The way of all other requests. To make it takes a third of a second of processor time, so
        a process that only sends bodies never makes one."""
        with self._making:
            if self._client is None:
                self._client = self._new_client()
            return self._client

    def _new_client(self) -> S3Client:
        made = _client(self._settings, self._session, self._attempts, self._ca_bundle)
        if self._pace is not None:
            self._pace.attach(made)
        return made


def _client(
    settings: Settings, session: botocore.session.Session, attempts: int, ca_bundle: str
) -> S3Client:
    bucket = settings.bucket
    connections = settings.drain.workers * settings.drain.part_concurrency + SPARE_CONNECTIONS
    made: S3Client = boto3.Session(botocore_session=session).client(
        "s3",
        endpoint_url=bucket.endpoint_url or None,
        region_name=bucket.region,
        verify=ca_bundle or None,
        config=Config(
            s3={"addressing_style": "path" if bucket.path_style else "virtual"},
            connect_timeout=bucket.connect_timeout_seconds,
            read_timeout=bucket.read_timeout_seconds,
            retries={"mode": "standard", "total_max_attempts": attempts},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            max_pool_connections=connections,
            tcp_keepalive=True,
        ),
    )
    # botocore sends newer checksums in these requests, or none. Not every server accepts that (for
    # example for a copy into a bucket with Object Lock).
    for operation in ("DeleteObjects", "PutBucketLifecycleConfiguration", "CopyObject"):
        made.meta.events.register(f"before-call.s3.{operation}", _add_content_md5)
    for operation in (*LASTING, "CreateMultipartUpload", "DeleteObjects", "DeleteObject"):
        made.meta.events.register_first(f"needs-retry.s3.{operation}", _not_again)
    made.meta.events.register_first("needs-retry.s3", _not_elsewhere)
    return made


def parsed_time(value: Any) -> datetime:
    """Return a time of an answer. What botocore uses takes more than half of the time of a LIST.

    Args:
        value: in the form of ISO 8601, of RFC 822, or seconds since 1970.

    Raises:
        ValueError: it is none of these.
    """
    if isinstance(value, str) and value.endswith("Z"):
        with suppress(ValueError):
            return datetime.fromisoformat(value)
    return parse_timestamp(value)


def _add_content_md5(params: dict[str, Any], **_event: object) -> None:
    digest = hashlib.md5(params["body"], usedforsecurity=False).digest()
    params["headers"]["Content-MD5"] = base64.b64encode(digest).decode()


def _not_again(
    operation: OperationModel,
    response: tuple[Any, Any] | None = None,
    caught_exception: Exception | None = None,
    **_event: object,
) -> None:
    # A second try would hide from the drain how the first one ended: it may have begun an upload
    # too, and may still delete or replace a later object at the key. A store that is at work on the
    # first try of a copy or a completion would begin again.
    if caught_exception is not None:
        raise caught_exception
    if response is not None and response[0].status_code >= 300:
        raise ClientError(response[1], operation.name)


def _not_elsewhere(
    operation: OperationModel, response: tuple[Any, Any] | None = None, **_event: object
) -> None:
    # botocore would follow to another region by itself. Requests with bodies do not go this way, so
    # a check would pass, and each upload fail.
    if response is not None:
        answered = ClientError(response[1], operation.name)
        if code_of(answered) in _REGION or response[0].status_code in (301, 307, 308):
            raise answered


def _check_ca_bundle(name: str, path: str) -> None:
    try:
        ssl.create_default_context(cafile=path)
    except OSError as exc:
        raise StoreRefused(
            f"{name} {path} cannot be used ({exc.strerror or exc}): it must be a file "
            "of certificates in PEM"
        ) from None


def _use_credentials(session: botocore.session.Session, settings: Settings) -> None:
    path = settings.credentials_file
    try:
        with retry.place(path).open():  # botocore takes a file that it may not read for empty
            credentials = SharedCredentialProvider(str(retry.place(path)), "default").load()
    except ConfigParseError:
        # The message of the error is not shown: it quotes the line, which may be the secret.
        raise StoreRefused(
            f"{path} is not an AWS credentials file: write [default], aws_access_key_id = ..., "
            "aws_secret_access_key = ..."
        ) from None
    except PartialCredentialsError:
        raise StoreRefused(f"{path} has no aws_secret_access_key in [default]: add it") from None
    except OSError as exc:
        raise StoreRefused(f"cannot read {path}: {exc.strerror}: check its permissions") from None
    if credentials is None:
        raise StoreRefused(f"{path} has no aws_access_key_id in [default]: add it")
    session.set_credentials(credentials.access_key, credentials.secret_key, credentials.token)


def code_of(exc: ClientError) -> str:
    """Return the code of an answer, or the HTTP status for HEAD, which has no body."""
    return str(exc.response.get("Error", {}).get("Code", ""))


def refuses_credentials(exc: Exception) -> bool:
    """Return whether an answer says that the credentials are wrong, or not valid any more."""
    return isinstance(exc, ClientError) and code_of(exc) in _CREDENTIALS | {"401"}


def is_lacking(exc: StoreError) -> bool:
    """Return whether a refusal may mean that the store does not know this kind of request."""
    cause = exc.__cause__
    if not isinstance(cause, ClientError):
        return False
    status = cause.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return code_in(exc) == "NotImplemented" or (
        status in (400, 405, 411, 501) and code_in(exc) not in OF_ALL_REQUESTS
    )


def is_failed_condition(exc: StoreError) -> bool:
    """Return whether an answer says that a condition of the request does not hold."""
    return code_in(exc) in _FAILED_CONDITION


def code_in(exc: StoreError) -> str:
    """Return the code of the answer that caused an error, or "" if no answer did."""
    cause = exc.__cause__
    return code_of(cause) if isinstance(cause, ClientError) else ""


def typed(
    settings: Settings,
    operation: str,
    key: str | None,
    exc: ClientError | BotoCoreError | ResponseParserError,
) -> StoreError:
    """Return our error for one of boto's. The message is one line and says what to do."""
    bucket = settings.bucket
    where = bucket.endpoint_url or "AWS"
    if isinstance(exc, ClientError):
        return _answered(settings, operation, key, exc)
    if isinstance(
        exc,
        (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError, ProfileNotFound),
    ):
        return StoreRefused(
            f"no credentials for bucket {bucket.name}: write {settings.credentials_file}"
        )
    if isinstance(exc, ResponseParserError):
        return StoreUnavailable(f"{where} answers {operation} with something that is not S3")
    untrusted = network.error_behind(exc) if isinstance(exc, SSLError) else None
    if isinstance(untrusted, ssl.SSLCertVerificationError):
        return StoreRefused(
            f"the certificate of {where} is not trusted: {network.why_untrusted(untrusted)}: set "
            "bucket.ca_bundle to that of its CA, or correct bucket.endpoint_url"
        )
    if isinstance(exc, ReadTimeoutError) and _may_last(operation):
        return _slow(settings, operation)
    if isinstance(exc, (HTTPClientError, BotoConnectionError)):
        return StoreUnavailable(
            f"cannot reach {where} ({type(exc).__name__}): check bucket.endpoint_url and the "
            "network"
        )
    if isinstance(exc, ParamValidationError) and key is not None:
        return ObjectRefused(f"{key}: not possible in S3: {_line(exc)}")
    return StoreRefused(f"bucket {bucket.name} cannot be used: {_line(exc)}")


def _answered(settings: Settings, operation: str, key: str | None, exc: ClientError) -> StoreError:
    bucket = settings.bucket
    where = bucket.endpoint_url or "AWS"
    code = code_of(exc)
    status = exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code == "NoSuchBucket" or (key is None and code in ("404", "NotFound")):
        return StoreRefused(f"no bucket {bucket.name} at {where}: create it or correct bucket.name")
    if code in _QUOTA or status == 507:
        return StoreRefused(
            f"bucket {bucket.name} has no room left ({code or status}): raise its quota, or delete "
            "files; what waits is kept here"
        )
    if code.startswith("KMS.") or (code in _PERMISSION and "kms:" in _line(exc).lower()):
        return StoreRefused(
            f"bucket {bucket.name} denies us its encryption key ({code}): enable the key and grant "
            "these credentials kms:GenerateDataKey and kms:Decrypt"
        )
    if code in _PERMISSION:
        return StoreRefused(
            f"bucket {bucket.name} denies {operation} ({code}): grant these credentials "
            "list, read, write and delete"
        )
    if code == "RequestTimeTooSkewed":
        return StoreRefused(f"{where} finds our clock wrong: set the time of this machine")
    if code in _REGION or status in (301, 307, 308):
        return StoreRefused(f"bucket {bucket.name} is elsewhere ({code}): {_where(exc)}")
    # A status 403 alone proves nothing: S3 also answers it for one object (an archived one, say),
    # while a refusal of the credentials stops the whole drain.
    if code in _CREDENTIALS or status == 401 or (status == 403 and key is None):
        return StoreRefused(
            f"{where} refuses our credentials ({code}): correct {settings.credentials_file}"
        )
    if status == GATEWAY_TIMEOUT and _may_last(operation):
        return _slow(settings, operation)
    if code in _PASSING or (status >= 500 and code != "NotImplemented"):
        # An earlier try of the request may have got no answer, and may still be carried out.
        is_first = not exc.response.get("ResponseMetadata", {}).get("RetryAttempts")
        made = StoreBusy if code in _BUSY and is_first else StoreUnavailable
        return made(f"{where} answers {code or status} to {operation}: it may recover")
    if key is None:
        return StoreRefused(f"bucket {bucket.name} refuses {operation}: {_reason(exc)}")
    return _of_object(operation, key, exc)


def _of_object(operation: str, key: str, exc: ClientError) -> ObjectRefused:
    """Return the error of an answer that says nothing of other objects."""
    code = code_of(exc)
    status = exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in NO_OBJECT:
        subject = f"the source of {key}" if operation in _COPIES else key
        return ObjectRefused(
            f"{subject}: the bucket has no such object ({code}, {operation}): if a person or a "
            "rule of the bucket deleted it, bring it back there, as it was"
        )
    if operation == "get_object" and code in _FAILED_CONDITION:
        return ObjectRefused(
            f"{key}: the bucket has another object there than the one that was recorded ({code}): "
            "if another program put it there, bring the former one back"
        )
    if code in _TOO_LARGE or status == 413:
        lower = "lower drain.part_bytes, or " if operation == "upload_part" else ""
        return TooLarge(
            f"{key}: {operation}: too large for the store, or for a proxy before it ({code}): "
            f"{lower}raise that limit and restart spillway-drain, or split the file; it is sent "
            "again once a day"
        )
    if code in ARCHIVED:
        return ObjectRefused(
            f"{key}: {operation}: the object is archived ({code}): restore it, and exclude our "
            "prefix from the rule that archives (spillway bucket setup shows it)"
        )
    return ObjectRefused(f"{key}: the store refuses {operation}: {_reason(exc)}")


def _where(exc: ClientError) -> str:
    """Return what to do about an answer that names another region or address."""
    error: Mapping[str, Any] = exc.response.get("Error", {})
    headers = exc.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = str(headers.get("x-amz-bucket-region") or error.get("Region"))
    # Another server than a store may answer anything.
    if _REGION_NAME.fullmatch(region):
        return f'write bucket.region = "{region}"'
    return "correct bucket.region, or bucket.endpoint_url"


def _may_last(operation: str) -> bool:
    return operation in {xform_name(name) for name in LASTING}


def _slow(settings: Settings, operation: str) -> StoreSlow:
    seconds = settings.bucket.read_timeout_seconds
    return StoreSlow(
        f"{settings.bucket.endpoint_url or 'AWS'} has not answered {operation} within {seconds:g} s"
        ", or a proxy before it gave up: the object is looked for before anything is sent again; "
        "if this repeats, raise bucket.read_timeout_seconds and the time-outs of proxies"
    )


def _reason(exc: ClientError) -> str:
    """Return the code and the words of the store."""
    words = " ".join(str(exc.response.get("Error", {}).get("Message", "")).split())
    return f"{code_of(exc)}: {words}" if words else code_of(exc)


def _line(exc: Exception) -> str:
    return " ".join(str(exc).split())
