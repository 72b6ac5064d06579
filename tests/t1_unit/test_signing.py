"""Signatures are the same as botocore's for the same requests."""

from __future__ import annotations

import calendar
import time
from typing import Any

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from botocore.utils import percent_encode
from hypothesis import given
from hypothesis import strategies as st

from gateway.objectstore import signed_http

KEYS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40)
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)
NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,20}", fullmatch=True)
SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


class Reference(S3SigV4Auth):
    """botocore's signer, with a given digest of the body."""

    def __init__(self, credentials: Any, region: str, sha256: str) -> None:
        super().__init__(credentials, "s3", region)
        self._sha256 = sha256

    def payload(self, request: Any) -> str:
        return self._sha256


@given(
    key=KEYS,
    parameters=st.dictionaries(KEYS, KEYS, max_size=3),
    metadata=st.dictionaries(NAMES.map(str.lower), VALUES, max_size=4),
    token=st.none() | st.just("a+token/=="),
    host=st.sampled_from(["127.0.0.1:9000", "b.s3.eu-west-1.amazonaws.com", "[::1]:9000"]),
    sha256=st.sampled_from([SHA256, signed_http.UNSIGNED]),
)
def test_signatures_are_those_of_botocore(
    key: str,
    parameters: dict[str, str],
    metadata: dict[str, str],
    token: str | None,
    host: str,
    sha256: str,
) -> None:
    credentials = ReadOnlyCredentials("AKIA", "the/secret+key", token)
    headers = {f"x-amz-meta-{name}": value for name, value in metadata.items()}
    headers["Content-Length"] = "4"
    path = "/" + percent_encode(key, safe="/~")
    query = signed_http.canonical_query(parameters)
    url = f"http://{host}{path}" + (f"?{query}" if query else "")
    theirs: Any = AWSRequest("PUT", url, headers=headers)
    Reference(credentials, "eu-west-1", sha256).add_auth(theirs)
    at = calendar.timegm(time.strptime(theirs.context["timestamp"], "%Y%m%dT%H%M%SZ"))
    request = signed_http.SignedRequest("PUT", host, path, query, headers, sha256)
    ours = signed_http.sign(request, credentials, "eu-west-1", at)
    assert ours == {name: theirs.headers[name] for name in ours}
    assert ("X-Amz-Security-Token" in ours) == (token is not None)


def test_a_key_is_of_its_day_secret_and_region() -> None:
    request = signed_http.SignedRequest("PUT", "h", "/k", "", {}, SHA256)
    signed = [
        signed_http.sign(request, ReadOnlyCredentials("AKIA", secret, None), region, at)
        for secret, region, at in [
            ("one", "r1", 0.0),
            ("two", "r1", 0.0),
            ("one", "r2", 0.0),
            ("one", "r1", 86_400.0),
            ("one", "r1", 0.0),
        ]
    ]
    signatures = [headers["Authorization"].rpartition("=")[2] for headers in signed]
    assert len(set(signatures)) == 4
    assert signatures[0] == signatures[4]
