"""Which status answers an error of the gateway, and whether it says when to try again."""

from __future__ import annotations

import pytest

from admin_api import problems
from gateway.common import errors
from gateway.objectstore.foreign import ForeignObject


@pytest.mark.parametrize(
    ("kind", "status", "again"),
    [
        (errors.StoreUnavailable, 503, "5"),
        (errors.StoreBusy, 503, "5"),
        (errors.StoreSlow, 503, "5"),
        (errors.SignAwaited, 503, "5"),
        (errors.Deferred, 502, None),
        (errors.StoreRefused, 502, None),
        (errors.OtherOwner, 502, None),
        (errors.ObjectRefused, 502, None),
        (errors.Occupied, 502, None),
        (ForeignObject, 502, None),
        (errors.TooLarge, 502, None),
        (errors.WrongBytes, 502, None),
        (errors.UserError, 409, None),
        (errors.IdentityError, 409, None),
        (errors.ExportRefused, 409, None),
        (errors.ExportChanged, 412, None),
        (errors.PolicyError, 422, None),
        (errors.NotPossible, 409, None),
        (errors.NotThere, 404, None),
        (errors.Changed, 412, None),
        (errors.TrashRefused, 409, None),
        (errors.DoorClosed, 503, "5"),
        (errors.TryAgain, 503, "1"),
    ],
)
def test_the_status_of_an_error(
    kind: type[errors.SpillwayError], status: int, again: str | None
) -> None:
    problem = problems.of(kind("what\nto do"))
    assert (problem.status, problem.detail) == (status, "what to do")
    assert (problem.headers or {}).get("Retry-After") == again
