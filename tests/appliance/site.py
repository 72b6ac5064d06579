"""What the tests say in the file of the first boot."""

from __future__ import annotations

from pathlib import Path

from tests.appliance.gateway import ADDRESS, CARD, CLIENT_ADDRESS, DATA_DEVICE
from tests.appliance.machine import HOST
from tests.support.s3server import ACCESS_KEY, SECRET_KEY

BUCKET = "checkpoints"
HOSTNAME = "gateway1"
RANKS = 2
_TEXT = """\
[machine]
hostname = "{hostname}"
ssh_keys = ["{key}"]
data_device = "{device}"
interface = "{card}"
address = "{address}/24"

[credentials]
access_key_id = "{key_id}"
secret_access_key = "{secret}"

[bucket]
name = "{bucket}"
endpoint_url = "http://{host}:{port}"

[nfs]
clients = ["{client} rw", "10.0.2.0/24 rw"]
lease_seconds = 10
grace_seconds = 15

[drain]
settle_seconds = 1.0

[[export]]
name = "/datasets"
path = "datasets"
clients = ["{client} ro"]
"""
_RETENTION = """\

[[checkpoints.rule]]
name = "ours"
path = "{run}/step-{step}"
files = 2

[[policy]]
name = "newest"
run = "*"
keep_newest = 1
wait_hours = 0
"""


def text(key: Path, server_port: int, *, retention: bool = True) -> str:
    """Return the file.

    Args:
        key: key of which the public half goes in.
        server_port: server port of the S3 server on this machine.
        retention: whether there is a policy.
    """
    base = _TEXT.format(
        hostname=HOSTNAME, key=key.with_suffix(".pub").read_text().strip(), device=DATA_DEVICE,
        card=CARD, address=ADDRESS, key_id=ACCESS_KEY, secret=SECRET_KEY, bucket=BUCKET,
        host=HOST, port=server_port, client=CLIENT_ADDRESS,
    )  # fmt: skip
    return base + _RETENTION * retention
