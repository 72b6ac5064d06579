"""Restore of a checkpoint from a bucket alone, by its manifest.

It uses boto3, and nothing of the gateway.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client


def manifests(client: S3Client, bucket: str, prefix: str) -> dict[str, dict[str, Any]]:
    """Return the manifests of a gateway, by key below the prefix of manifests."""
    below = f"{prefix}/.spillway/checkpoints/"
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=below)
    document = {}
    for page in pages:
        for listed_object in page.get("Contents", []):
            try:
                body = client.get_object(Bucket=bucket, Key=listed_object["Key"])["Body"].read()
            except client.exceptions.NoSuchKey:
                continue  # it was deleted since it was listed
            document[listed_object["Key"].removeprefix(below)] = json.loads(body)
    return document


def restore(client: S3Client, bucket: str, manifest: dict[str, Any], to: Path) -> None:
    """Make the members of a checkpoint below a directory. Raises AssertionError when the bucket has
    another object than the manifest names."""
    top = os.fsencode(to)
    os.makedirs(top)
    modes = [(top, manifest["mode"])] if manifest["extent"] != "file" else []
    for member in manifest["members"]:
        path = os.path.join(top, unquote_to_bytes(member["path"]))
        if member["type"] == "directory":
            os.mkdir(path)
            modes.append((path, member["mode"]))
        elif member["type"] == "symlink":
            os.symlink(unquote_to_bytes(member["target"]), path)
        elif member["type"] == "file":
            try:
                answer = client.get_object(Bucket=bucket, Key=member["key"])
            except client.exceptions.NoSuchKey:
                raise AssertionError(member) from None
            with closing(answer["Body"]) as body:
                assert answer["ETag"].strip('"') == member["etag"], member
                data = body.read()
            assert len(data) == member["size"], member
            with open(path, "xb") as file:
                file.write(data)
            os.chmod(path, int(member["mode"], 8))
            os.utime(path, ns=(member["mtime_ns"], member["mtime_ns"]))
    for path, mode in reversed(modes):
        os.chmod(path, int(mode, 8))


def content(top: Path) -> dict[bytes, str]:
    """Return what a directory has: the SHA-256 of each file, the target of each link, and the mode
    of each directory, by path."""
    found = {}
    for above, directories, files in os.walk(os.fsencode(top)):
        for name in [*directories, *files]:
            path = os.path.join(above, name)
            below = os.path.relpath(path, os.fsencode(top))
            if os.path.islink(path):
                found[below] = f"-> {os.fsdecode(os.readlink(path))}"
            elif os.path.isdir(path):
                found[below] = f"directory {os.stat(path).st_mode & 0o7777:04o}"
            else:
                with open(path, "rb") as file:
                    found[below] = hashlib.sha256(file.read()).hexdigest()
    return found
