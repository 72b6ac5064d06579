"""A drain may still send some kinds of requests to a bucket that refused others."""

from __future__ import annotations

from gateway.drain.admission.health import BucketState, Health
from gateway.drain.job import Work
from gateway.errors import StoreRefused


def test_a_move_that_is_refused_and_one_that_works_do_not_stop_the_uploads() -> None:
    """Both may be of one batch, whose results are counted one after the other."""
    health = Health("bench", retry_max_seconds=60.0)
    health.checked()
    health.failed(StoreRefused("denied"), Work.COPY)
    assert health.admits(Work.UPLOAD)
    assert not health.admits(Work.COPY)
    health.worked(Work.COPY)
    assert health.state == BucketState.REACHABLE
    assert health.admits(Work.UPLOAD)
    assert health.admits(Work.COPY)


def test_work_of_one_kind_says_nothing_of_another_that_is_refused() -> None:
    health = Health("bench", retry_max_seconds=60.0)
    health.checked()
    health.failed(StoreRefused("denied"), Work.COPY)
    health.failed(StoreRefused("denied"), Work.DELETE)
    health.worked(Work.COPY)
    assert health.state == BucketState.REFUSED
    assert health.admits(Work.UPLOAD)
    assert not health.admits(Work.DELETE)
