"""Store that verifies the newer checksums, as AWS does: put between the proxy and moto.

It compares x-amz-checksum-* with the bodies, refuses what differs (BadDigest), keeps the checksum
with the object and tells it again. Checksums of uploads in parts are of the whole (FULL_OBJECT).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote
from xml.etree import ElementTree

from awscrt import checksums as crt

from tests.support.s3proxy import Headers, Request

ALGORITHMS = {
    "crc64nvme": (crt.crc64nvme, crt.combine_crc64nvme, 8),
    "crc32c": (crt.crc32c, crt.combine_crc32c, 4),
}
_PREFIX = "x-amz-checksum-"


class _Part(NamedTuple):
    value: int
    size: int


@dataclass
class _Upload:
    kind: str | None
    """None: it was begun without a checksum."""
    parts: dict[int, _Part] = field(default_factory=dict)


class Verifier:
    """Verifies the newer checksums, as AWS does.

    Its flaws, for tests: ``refuses_all``, refuses every request with such a header; ``believes``,
    takes wrong ones, of objects (``PUT``) or parts (``PART``), and tells them again; ``tells``,
    whether it tells the checksum of an object; ``tells_wrong``, the operations that it answers with
    another one; ``knows_parts``, whether it takes notice of the checksums of uploads in parts;
    ``hides_etag``, answers a PUT without one.

    Args:
        kinds: the checksums that it knows; it takes no notice of others.
    """

    def __init__(self, kinds: Collection[str] = tuple(ALGORITHMS)) -> None:
        self.kinds = tuple(kinds)
        self.refuses_all = False
        self.believes = ""
        self.tells = True
        self.tells_wrong: Collection[str] = ()
        self.knows_parts = True
        self.hides_etag = False
        self.refused = 0
        self._objects: dict[str, tuple[str, str]] = {}
        self._uploads: dict[str, _Upload] = {}

    def refusal(self, request: Request, body: bytes) -> str | None:
        refusal = self._refusal(request, body)
        self.refused += refusal is not None
        return refusal

    def _refusal(self, request: Request, body: bytes) -> str | None:
        kind = self._kind(request)
        sent = request.headers.get(f"{_PREFIX}{kind}")
        if kind and self.refuses_all:
            return "InvalidRequest"
        if request.operation == self.believes:
            return None
        if request.operation == "PUT" and kind:
            return None if sent == _text(kind, _of(kind, body)) else "BadDigest"
        upload = self._uploads.get(request.query.get("uploadId", ""))
        if upload is None or not self.knows_parts:
            return None
        if request.operation == "PART":
            if kind != upload.kind:
                return "InvalidRequest"
            return None if not kind or sent == _text(kind, _of(kind, body)) else "BadDigest"
        if request.operation == "COMPLETE" and upload.kind:
            return self._refusal_of_whole(upload, sent, body)
        return None

    def _refusal_of_whole(self, upload: _Upload, sent: str | None, body: bytes) -> str | None:
        assert upload.kind is not None
        for part in ElementTree.fromstring(body).findall("{*}Part"):
            number = int(part.findtext("{*}PartNumber") or 0)
            said = part.findtext(f"{{*}}Checksum{upload.kind.upper()}")
            if number not in upload.parts or said != _text(upload.kind, upload.parts[number].value):
                return "InvalidPart"
        return None if sent in (None, _text(upload.kind, _whole(upload))) else "BadDigest"

    def answered(
        self, request: Request, body: bytes, headers: Headers, content: bytes
    ) -> tuple[Headers, bytes]:
        headers = [(n, v) for n, v in headers if not n.lower().startswith(_PREFIX)]
        kind, place = self._kind(request), f"{request.bucket}/{request.key}"
        upload = self._uploads.get(request.query.get("uploadId", ""))
        told: tuple[str, str] | None = None
        if request.operation == "PUT":
            if self.hides_etag:
                headers = [(n, v) for n, v in headers if n.lower() != "etag"]
            self._objects.pop(place, None)
            if kind:
                told = self._objects[place] = (kind, _text(kind, _of(kind, body)))
        elif request.operation == "HEAD" and "x-amz-checksum-mode" in request.headers:
            told = self._objects.get(place)
        elif request.operation == "COPY":
            source = unquote(request.copy_source or "").lstrip("/")
            if source in self._objects:
                self._objects[place] = self._objects[source]
        elif request.operation == "CREATE":
            named = request.headers.get("x-amz-checksum-algorithm", "").lower()
            upload_id = ElementTree.fromstring(content).findtext("{*}UploadId") or ""
            self._uploads[upload_id] = _Upload(named if named in self.kinds else None)
        elif request.operation == "PART" and upload is not None and upload.kind:
            part = _Part(_of(upload.kind, body), len(body))
            upload.parts[int(request.query["partNumber"])] = part
            told = (upload.kind, _text(upload.kind, part.value))
        elif request.operation == "COMPLETE" and upload is not None:
            self._objects.pop(place, None)
            if upload.kind and self.knows_parts:
                self._objects[place] = (upload.kind, _text(upload.kind, _whole(upload)))
        elif request.operation == "LIST PARTS" and upload is not None and upload.kind:
            content = _with_checksums(upload, content)
            headers = [(n, v) for n, v in headers if n.lower() != "content-length"]
        if told is not None and self.tells:
            name, value = told
            headers.append(
                (_PREFIX + name, "AAAAAAAAAAA=" if request.operation in self.tells_wrong else value)
            )
            headers.append(("x-amz-checksum-type", "FULL_OBJECT"))
        return headers, content

    def checksum(self, place: str) -> tuple[str, str] | None:
        """Return kind and value of an object's checksum.

        Args:
            place: bucket and key.
        """
        return self._objects.get(place)

    def _kind(self, request: Request) -> str | None:
        return next((kind for kind in self.kinds if _PREFIX + kind in request.headers), None)


def _of(kind: str, body: bytes) -> int:
    value: int = ALGORITHMS[kind][0](body)
    return value


def _text(kind: str, value: int) -> str:
    return base64.b64encode(value.to_bytes(ALGORITHMS[kind][2], "big")).decode()


def _whole(upload: _Upload) -> int:
    value = 0
    for _number, part in sorted(upload.parts.items()):
        value = ALGORITHMS[upload.kind or ""][1](value, part.value, part.size)
    return value


def _with_checksums(upload: _Upload, content: bytes) -> bytes:
    """A list of parts as a store gives it that knows their checksums."""
    kind = upload.kind or ""
    algorithm = kind.upper()
    text = re.sub(rb"<Checksum.*?</Checksum\w+>", b"", content).decode()

    def add(match: re.Match[str]) -> str:
        value = _text(kind, upload.parts[int(match[1])].value)
        return f"{match[0]}<Checksum{algorithm}>{value}</Checksum{algorithm}>"

    text = re.sub(r"<PartNumber>(\d+)</PartNumber>", add, text)
    named = f"<ChecksumAlgorithm>{algorithm}</ChecksumAlgorithm>"
    return re.sub(r"(</\w+>\s*)$", rf"{named}\1", text).encode()
