"""Which checksum a store verifies: what it is asked, and what its answers mean."""

from __future__ import annotations

import json
import logging
import os
from typing import Any

import pytest

from gateway.drain import worker
from gateway.objectstore import negotiation
from gateway.objectstore.checksums import ChecksumKind
from gateway.objectstore.negotiation import negotiate
from tests.support.clisite import spillway
from tests.support.drainsite import MIB, PREFIX, Site
from tests.support.s3proxy import Act, Request
from tests.support.t4.ceph import ON_CEPH
from tests.support.t4.negotiated import configured, remembered
from tests.support.verifier import Verifier

ANY = ("PUT", "PART", "HEAD")


def asked(site: Site) -> list[Request]:
    """Requests that put something at the key of the question."""
    return [r for r in site.proxy.operations("PUT", "PART") if "/.spillway/probe/" in r.key]


@pytest.mark.parametrize(
    ("flaws", "kinds", "expected"),
    [
        ({}, ["crc64nvme", "crc32c"], "crc64nvme"),
        ({}, ["crc32c"], "crc32c"),
        ({}, [], "md5"),
        ({"refuses_all": True}, ["crc64nvme", "crc32c"], "md5"),
        ({"believes": "PUT"}, ["crc64nvme", "crc32c"], "md5"),
        ({"believes": "PART"}, ["crc64nvme", "crc32c"], "md5"),
        ({"tells": False}, ["crc64nvme", "crc32c"], "md5"),
        ({"tells_wrong": ANY}, ["crc64nvme", "crc32c"], "md5"),
        ({"knows_parts": False}, ["crc64nvme", "crc32c"], "md5"),
    ],
)
def test_only_a_checksum_that_the_store_refuses_when_wrong_and_tells_is_used(
    verifying_site: Site, flaws: dict[str, Any], kinds: list[str], expected: str
) -> None:
    site = verifying_site
    verifier = site.proxy.verifier = Verifier(kinds)
    for flaw, value in flaws.items():
        setattr(verifier, flaw, value)
    files = {"f": b"data", "g": os.urandom(11 * MIB)}
    for path, data in files.items():
        site.write(path, data)
    site.drain()
    assert remembered(site) == [expected]
    assert site.objects() == files, "nothing is left of the question"
    assert site.multiparts() == 0
    assert site.left() == []
    sent = [r for r in site.proxy.operations("PUT", "PART") if r not in asked(site)]
    header = ChecksumKind(expected).header.lower()
    assert all(header in r.headers for r in sent)
    site.proxy.forget()
    site.drain()
    assert asked(site) == [], "it is asked once"


def test_servers_that_take_anything_get_md5(site: Site) -> None:
    configured(site, "auto")
    site.write("f", b"data")
    site.drain()
    assert remembered(site) == ["md5"]
    assert site.objects() == {"f": b"data"}


@pytest.mark.parametrize(
    ("status", "code"), [(503, "SlowDown"), (403, "AccessDenied"), (400, "RequestTimeout")]
)
@pytest.mark.parametrize("number", [1, 2])
def test_an_answer_that_does_not_tell_means_md5_for_now(
    verifying_site: Site, status: int, code: str, number: int
) -> None:
    """The first is that to the wrong checksum, the second that to the right one."""
    site = verifying_site
    count = 0

    def is_that(request: Request) -> bool:
        nonlocal count
        count += "/.spillway/probe/" in request.key and request.operation == "PUT"
        return count >= number and "/.spillway/probe/" in request.key

    fault = site.proxy.inject(is_that, Act.FAIL, 1e9, status, code)
    site.write("f", b"data")
    site.drain()
    assert remembered(site) == []
    assert site.objects()["f"] == b"data"
    assert dict(site.rows("SELECT key, checksum FROM object")).popitem()[1].startswith("md5:")
    fault.release()
    site.drain()
    assert remembered(site) == ["crc64nvme"]


def test_a_store_that_takes_nothing_for_now_is_asked_again(verifying_site: Site) -> None:
    """A key of KMS that is disabled, or an unknown storage class, refuses every object."""
    site = verifying_site
    fault = site.proxy.inject(
        lambda r: r.operation == "PUT", Act.FAIL, 1e9, 400, "KMS.DisabledException"
    )
    site.drain()
    assert remembered(site) == []
    fault.release()
    site.drain()
    assert remembered(site) == ["crc64nvme"]


@pytest.mark.skipif(ON_CEPH, reason="Ceph 16 has no SSE-S3")
def test_a_store_is_asked_with_objects_as_it_gets_them(verifying_site: Site) -> None:
    """A policy may deny objects that are not encrypted as it says."""
    site = verifying_site
    site.values["bucket"]["encryption"] = "AES256"
    site.configure()

    def is_not_encrypted(request: Request) -> bool:
        return request.operation == "PUT" and (
            "x-amz-server-side-encryption" not in request.headers
        )

    site.proxy.inject(is_not_encrypted, Act.FAIL, 1e9, 403, "AccessDenied")
    site.drain()
    assert remembered(site) == ["crc64nvme"]


def test_credentials_that_cannot_be_read_are_no_answer_of_the_store(verifying_site: Site) -> None:
    site = verifying_site
    site.settings.credentials_file.write_text("[default]\naws_access_key_id = a\n")
    assert negotiation._Trial(site.settings, ChecksumKind.CRC64NVME, None).is_verified() is None
    assert negotiate(site.settings) is None


PARTS = """<ListPartsResult>
<ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType>
<IsTruncated>false</IsTruncated>
<Part><PartNumber>1</PartNumber><ETag>"0"</ETag><Size>51</Size></Part>
</ListPartsResult>"""


@pytest.mark.parametrize(("status", "content"), [(501, ""), (200, PARTS)])
def test_a_store_that_does_not_list_parts_with_their_checksum_gets_md5(
    verifying_site: Site, status: int, content: str
) -> None:
    """An interrupted upload resumes with what is listed."""
    site = verifying_site
    fault = site.proxy.inject(
        lambda r: r.operation == "LIST PARTS", Act.FAIL, 1e9, status, "NotImplemented"
    )
    fault.content = content
    site.drain()
    assert remembered(site) == ["md5"]


def test_an_answer_that_makes_no_sense_does_not_end_the_drain(
    verifying_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nonsense(*_: object) -> ChecksumKind | None:
        raise KeyError("UploadId")

    monkeypatch.setattr(worker, "negotiate", nonsense)
    site = verifying_site
    site.write("f", b"data")
    site.drain()
    assert site.objects() == {"f": b"data"}
    assert remembered(site) == []


def test_an_object_of_the_question_that_stays_is_told(
    verifying_site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site = verifying_site
    site.proxy.inject(
        lambda r: r.method in ("POST", "DELETE") and r.operation != "COMPLETE",
        Act.FAIL,
        1e9,
        403,
        "AccessDenied",
    )
    with caplog.at_level(logging.WARNING, "drain"):
        negotiate(site.settings)
    assert f"stays at {PREFIX}/.spillway/probe/" in caplog.text


@pytest.mark.parametrize("checksum", ["md5", "crc32c"])
def test_a_person_may_say_which(verifying_site: Site, checksum: str) -> None:
    site = configured(verifying_site, checksum)
    site.write("f", b"data")
    site.drain()
    assert asked(site) == []
    (put,) = site.proxy.operations("PUT")
    assert ChecksumKind(checksum).header.lower() in put.headers
    assert remembered(site) == []


def test_bucket_setup_shows_what_it_found_also_without_a_database(verifying_site: Site) -> None:
    site = verifying_site
    site.values["namespace"]["url"] = f"sqlite:///{site.settings.data_dir}/none.db"
    site.configure()
    # Without its database the gateway cannot know that the prefix is its own.
    command = ("bucket", "setup", "--config", site.settings.source)
    assert "belongs to another gateway" in spillway(*command).stderr
    checksum = json.loads(spillway(*command, "--adopt", "--json").stdout)["checksum"]
    assert checksum.startswith("crc64nvme: the store refuses")
    assert "not recorded" in checksum


def test_bucket_setup_asks_and_remembers_and_status_shows(
    verifying_site: Site, verifier: Verifier
) -> None:
    site = verifying_site
    config = ("--config", site.settings.source)

    def status() -> Any:
        return json.loads(spillway("status", "--json", *config).stdout)["bucket"]["checksum"]

    assert status() == {"kind": None, "source": None}
    facts = json.loads(spillway("bucket", "setup", "--json", *config).stdout)
    assert facts["checksum"].startswith("crc64nvme: the store refuses")
    assert remembered(site) == ["crc64nvme"]
    assert status() == {"kind": "crc64nvme", "source": "store"}
    assert (
        "checksum    crc64nvme, the best the store verifies" in spillway("status", *config).stdout
    )
    # It is asked again each time: the store may be another one now.
    verifier.tells = False
    spillway("bucket", "setup", *config)
    assert remembered(site) == ["md5"]
    configured(site, "crc32c")
    assert status() == {"kind": "crc32c", "source": "configuration"}
    assert site.objects() == {}
