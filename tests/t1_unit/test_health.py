"""A drain may still send some kinds of requests to a bucket that refused others."""

from __future__ import annotations

from gateway.common.errors import StoreRefused
from gateway.drain.admission.health import BucketHealth, BucketState
from gateway.drain.job import WorkKind


def test_a_move_that_is_refused_and_one_that_works_do_not_stop_the_uploads() -> None:
    """Both may be of one batch, whose results are counted one after the other."""
    health = BucketHealth("bench", retry_max_seconds=60.0)
    health.checked()
    health.failed(StoreRefused("denied"), WorkKind.COPY)
    assert health.admits(WorkKind.UPLOAD)
    assert not health.admits(WorkKind.COPY)
    health.worked(WorkKind.COPY)
    assert health.state == BucketState.REACHABLE
    assert health.admits(WorkKind.UPLOAD)
    assert health.admits(WorkKind.COPY)


def test_work_of_one_kind_says_nothing_of_another_that_is_refused() -> None:
    health = BucketHealth("bench", retry_max_seconds=60.0)
    health.checked()
    health.failed(StoreRefused("denied"), WorkKind.COPY)
    health.failed(StoreRefused("denied"), WorkKind.DELETE)
    health.worked(WorkKind.COPY)
    assert health.state == BucketState.REFUSED
    assert health.admits(WorkKind.UPLOAD)
    assert not health.admits(WorkKind.DELETE)
