"""Digests of the objects in a bucket and of the files of a save, for comparison."""

from __future__ import annotations

import hashlib

from tests.support.gateway import Gateway


def digests(gateway: Gateway) -> dict[str, str]:
    return {key: hashlib.sha256(body).hexdigest() for key, body in gateway.objects().items()}


def below(directory: str, files: dict[str, str]) -> dict[str, str]:
    return {f"{directory}/{name}": digest for name, digest in files.items()}
