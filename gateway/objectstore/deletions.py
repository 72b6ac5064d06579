"""Deletions of objects: many in one request, or each by itself if the store cannot.

S3 operations: DeleteObjects, DeleteObject.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from botocore.exceptions import ClientError

from gateway.common.errors import ObjectRefused, StoreError, StoreRefused
from gateway.objectstore import client
from gateway.objectstore.request import Requests

DELETE_MAX = 1000
"""The most keys of one DeleteObjects."""
DELETES = 8
"""Deletions at a time if the store takes only one key in each request."""


class Deletions(Requests):
    """The deletions in one bucket. Args: as of Requests."""

    _deletes_each = False
    """Whether the store has shown that it has no DeleteObjects."""

    def delete_many(self, keys: Sequence[str]) -> dict[str, StoreError | None]:
        """Delete up to 1,000 objects, in one request if the store can (Google's cannot).

        It is no error if an object is gone already. Returns what went wrong, by key. Raises
        StoreError when the request itself failed.
        """
        if self._deletes_each:
            return self._delete_each(keys)
        try:
            answer = self._call(
                "delete_objects",
                None,
                Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True},
            )
        except StoreRefused as exc:
            if not client.is_lacking(exc):
                raise
            store_errors = self._delete_each(keys)
            # A deletion that worked shows that the store refused the kind of request.
            self._deletes_each = None in store_errors.values()
            return store_errors
        results: dict[str, StoreError | None] = dict.fromkeys(keys)
        for error in answer.get("Errors", []):
            key, code = error.get("Key", ""), error.get("Code", "")
            if key in results and code not in ("NoSuchKey", "404"):
                answered = ClientError({"Error": error}, "DeleteObjects")
                results[key] = client.typed(self._settings, "delete_objects", key, answered)
        return results

    def _delete_each(self, keys: Sequence[str]) -> dict[str, StoreError | None]:
        def delete(key: str) -> StoreError | None:
            try:
                self._call("delete_object", key)
            except ObjectRefused as exc:
                return None if client.code_in(exc) in client.NO_OBJECT else exc
            except StoreError as exc:
                return exc
            return None

        with ThreadPoolExecutor(min(len(keys), DELETES), thread_name_prefix="delete") as pool:
            return dict(zip(keys, pool.map(delete, keys), strict=True))
