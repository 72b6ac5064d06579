"""The variables of the roles with which a machine of the tests becomes a gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.appliance.saves import BUCKET
from tests.support.s3server import ACCESS_KEY, SECRET_KEY


def variables(endpoint: str, package: Path) -> dict[str, Any]:
    """Return them.

    Args:
        endpoint: endpoint of the bucket.
        package: the first one.
    """
    return {
        "base_update_cache": False,
        "storage_devices": ["/dev/nvme0n1", "/dev/nvme1n1"],
        "storage_layout": "mdadm",
        "firewall_ssh_clients": ["10.0.2.0/24"],
        "firewall_nfs_clients": ["10.0.2.0/24"],
        "monitoring_every_seconds": 3600,
        # The processor is emulated.
        "monitoring_answer_seconds": 600,
        "spillway_package": str(package),
        "spillway_access_key_id": ACCESS_KEY,
        "spillway_secret_access_key": SECRET_KEY,
        "spillway_settings": {
            "bucket": {"name": BUCKET, "endpoint_url": endpoint},
            "nfs": {"lease_seconds": 10, "grace_seconds": 15, "clients": ["127.0.0.1 rw"]},
            "drain": {"settle_seconds": 1.0},
            "checkpoints": {"rule": [{"name": "ours", "path": "{run}/done-{step}", "files": 1}]},
        },
        "spillway_policies": [{"name": "all", "run": "*", "keep_newest": 3}],
    }
