"""The S3 server of examples/s3-door, as its unit starts it, over a local directory."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import boto3
from botocore.config import Config

from tests.support.certificates import certify
from tests.support.checkout import ROOT
from tests.support.s3server import ACCESS_KEY, SECRET_KEY, Server

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

UNIT = ROOT / "examples/s3-door/spillway-s3-door.service"
MOUNT = "/mnt/ckpt"


def command_of_the_unit() -> list[str]:
    """Return the program of the unit and its arguments."""
    text = UNIT.read_text().replace("\\\n", "")
    [line] = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    return shlex.split(line)


class Door(Server):
    """A door.

    Args:
        directory: made if missing. It has the mount, and what the unit names.
    """

    def __init__(self, directory: Path) -> None:
        self.mount = directory / "mount"
        self.mount.mkdir(parents=True)
        super().__init__(directory / "door.log")
        self._directory = directory
        certify(directory)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        certificate, key = self._directory / "server.pem", self._directory / "server.key"
        here = {
            "/usr/bin/rclone": str(Path(sys.executable).with_name("rclone")),
            ":8443": f"127.0.0.1:{self.port}",
            "${CREDENTIALS_DIRECTORY}/certificate.pem": str(certificate),
            "${CREDENTIALS_DIRECTORY}/key.pem": str(key),
            MOUNT: str(self.mount),
        }
        words = command_of_the_unit()
        assert here.keys() <= set(words)
        # systemd takes the outer quotes of a value away.
        keys = f'RCLONE_AUTH_KEY="{ACCESS_KEY},{SECRET_KEY}"'
        return ["env", keys, *(here.get(word, word) for word in words)]

    def client(
        self,
        secret_key: str = SECRET_KEY,
        checksums: Literal["when_required", "when_supported"] = "when_required",
    ) -> S3Client:
        """Return a client with the setting that the page tells clients to have."""
        return boto3.session.Session().client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=secret_key,
            verify=str(self._directory / "ca.pem"),
            config=Config(request_checksum_calculation=checksums),
        )
