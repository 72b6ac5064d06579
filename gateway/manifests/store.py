"""The objects of manifests in the bucket, of checkpoints and of promoted copies.

A manifest always has the storage class of the bucket: it must be readable where the files are in an
archive. Only an object that is known to be ours is replaced or deleted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from typing import IO, TYPE_CHECKING

from gateway.db.engine import Database
from gateway.settings import Settings

if TYPE_CHECKING:
    # The imports are for types only: boto3 takes half a second.
    from gateway.objectstore.objects import Head, Stored
    from gateway.objectstore.s3 import S3Store

log = logging.getLogger("checkpoints")


class ManifestStore:
    """Client for the manifests of one gateway. The bucket is opened at the first request.

    Args:
        settings: of the gateway.
        database: of the gateway.
        stop: ends the wait for the ownership of the bucket.
    """

    def __init__(
        self, settings: Settings, database: Database, stop: threading.Event | None = None
    ) -> None:
        self._settings = settings
        self._database = database
        self._stop = stop

    @cached_property
    def _bucket(self) -> S3Store:
        from gateway.objectstore.s3 import S3Store
        from gateway.ownership.keeper import guarded

        readable = replace(self._settings.bucket, storage_class="")
        store = S3Store(replace(self._settings, bucket=readable))
        return guarded(store, self._settings, self._database, self._stop)

    def reload(self) -> None:
        """Read the credentials again at the next request: a person may have corrected them."""
        if "_bucket" in self.__dict__:
            self._bucket.reload()

    def head(self, key: str) -> Head | None:
        """Return what is at a key.

        Raises:
            StoreError: the bucket cannot be used.
        """
        return self._bucket.head(key)

    def put(
        self,
        key: str,
        text: IO[bytes],
        metadata: Mapping[str, str],
        is_ours: Callable[[Head], bool],
        remedy: str,
    ) -> Stored:
        """Put a manifest where nothing is, or an older one of ours.

        Args:
            key: of the manifest.
            text: an open file that was flushed, at its end.
            metadata: of the object.
            is_ours: whether an object at the key may be replaced.
            remedy: what a person can do about another program's object.

        Raises:
            ForeignObject: another program's object has the key.
            StoreError: the bucket cannot be used.
        """
        from gateway.objectstore.body import Section
        from gateway.ownership import foreign

        body = Section(text.fileno(), 0, text.tell())
        return foreign.put(self._bucket, key, body, metadata, is_ours, remedy)

    def delete(
        self,
        key: str,
        is_ours: Callable[[Head], bool],
        deleting: AbstractContextManager[None],
    ) -> bool:
        """Delete a manifest.

        Args:
            key: of the manifest.
            is_ours: whether the object at the key may be deleted.
            deleting: entered around the request. It is left with the error of a request that may be
                carried out all the same, and must record that.

        Returns:
            Whether something was deleted. Another program's object stays.

        Raises:
            StoreError: the bucket cannot be used.
        """
        head = self.head(key)
        if head is None:
            return False
        if not is_ours(head):
            log.warning("kept %s: another program has written it", key)
            return False
        with deleting:
            error = self._bucket.delete_many([key])[key]
            if error is not None:
                raise error
        return True
