"""Gateways on real S3 servers."""

from __future__ import annotations

from tests.support.sites import ceph, each_site, make_site, moto, moto_site, rclone, rclone_site

__all__ = ["ceph", "each_site", "make_site", "moto", "moto_site", "rclone", "rclone_site"]
