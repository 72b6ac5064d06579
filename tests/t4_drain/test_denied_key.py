"""A key that a policy denies is a failure of its file; a kind of work that is denied is refused."""

from __future__ import annotations

from gateway.drain.admission.retries import IN_A_ROW, Refusals
from gateway.drain.job import WorkKind
from tests.support.drainsite import Site
from tests.support.s3proxy import Act
from tests.support.t4.refused import bucket_state
from tests.support.waiting import until


def test_a_denied_key_does_not_hold_up_the_others(rclone_site: Site) -> None:
    site = rclone_site
    # With this value, a pause of all uploads would be far longer than the test.
    site.configure(retry_max_seconds=10_000)
    denied = site.proxy.inject(
        lambda r: r.method == "PUT" and r.key.endswith("denied"), Act.FAIL, 1e9, 403, "AccessDenied"
    )
    site.write("denied", b"x")
    contents = {}
    with site.draining():
        for wave in range(4):
            for number in range(20):
                path = f"{wave}/{number}"
                contents[path] = path.encode()
                site.write(path, contents[path])
            until(lambda: site.objects().keys() >= contents.keys(), "the others are drained")
            assert bucket_state(site) in ("reachable", "None", "unknown")
        until(lambda: site.rows("SELECT error FROM retry"), "the failure is recorded")
    ((error,),) = site.rows("SELECT error FROM retry")
    assert "denies put_object (AccessDenied)" in error
    denied.release()
    site.drain()
    assert site.objects() == {**contents, "denied": b"x"}


def test_refusals_in_a_row_are_of_the_kind() -> None:
    refusals = Refusals()
    for number in range(IN_A_ROW - 1):
        assert not refusals.refused(WorkKind.UPLOAD, (1, f"key {number}"))
    assert not refusals.refused(WorkKind.DELETE, ("another",))
    assert refusals.refused(WorkKind.UPLOAD, (2, "last"))


def test_a_key_that_was_refused_while_others_worked_is_no_news() -> None:
    refusals = Refusals()
    assert not refusals.refused(WorkKind.UPLOAD, (1, "denied"))
    refusals.worked(WorkKind.UPLOAD, (2, "good"))
    for _ in range(10 * IN_A_ROW):
        assert not refusals.refused(WorkKind.UPLOAD, (1, "denied"))
    refusals.worked(WorkKind.UPLOAD, (1, "denied"))
    keys = ["denied", "second", "third"]
    answers = [refusals.refused(WorkKind.UPLOAD, (1, key)) for key in keys]
    assert answers == [False] * (IN_A_ROW - 1) + [True]


def test_one_key_that_is_refused_again_and_again_is_one_refusal() -> None:
    refusals = Refusals()
    assert not any(refusals.refused(WorkKind.DELETE, ("denied",)) for _ in range(10 * IN_A_ROW))
    assert not refusals.refused(WorkKind.DELETE, ("second",))
    assert refusals.refused(WorkKind.DELETE, ("third",))


def test_keys_that_a_trial_was_refused_with_are_no_news_after_it() -> None:
    refusals = Refusals()
    keys = [f"key {number}" for number in range(IN_A_ROW)]
    assert [refusals.refused(WorkKind.DELETE, (key,)) for key in keys][-1]
    refusals.tried(WorkKind.DELETE)
    assert not any(refusals.refused(WorkKind.DELETE, (key,)) for key in keys)
    assert not refusals.refused(WorkKind.DELETE, ("another",))
