"""Which code and status answer an error of the gateway, and whether it says when to try again."""

from __future__ import annotations

import re

import pytest

from admin_api import problems
from admin_api.problems import ProblemCode
from gateway.common import errors

CODES = """
invalid_cursor invalid_operation missing_token invalid_token ended_session insufficient_role
invalid_csrf_token denied_access reserved_path unknown_route missing_resource unsupported_method
slow_body conflicting_state existing_resource replaced_file busy_file nonempty_directory
refused_deletion ended_job unfinished_call interrupted_call unkept_answer refused_export
invalid_configuration schema_mismatch identity_mismatch other_server locked_data_directory
version_conflict oversized_body unsupported_media_type foreign_host invalid_request invalid_policy
invalid_idempotency_key reused_idempotency_key missing_precondition request_limit
token_failure_limit internal_error bucket_error bucket_refusal bucket_owner_conflict object_refusal
occupied_key oversized_object corrupt_object archived_object unavailable_bucket
unavailable_nfs_server unavailable_database busy_namespace job_limit event_stream_limit full_disk
"""
"""Programs decide by these. A code that was published is never taken away or renamed."""


def test_the_codes_of_problems_stay() -> None:
    assert [*ProblemCode] == CODES.split()
    assert all(re.fullmatch("[a-z]+(_[a-z]+)+", code) for code in ProblemCode)
    assert all(400 <= code.status < 600 and code.meaning.endswith(".") for code in ProblemCode)


@pytest.mark.parametrize(
    ("kind", "code", "status", "again"),
    [
        (errors.StoreUnavailable, "unavailable_bucket", 503, "5"),
        (errors.StoreBusy, "unavailable_bucket", 503, "5"),
        (errors.StoreSlow, "unavailable_bucket", 503, "5"),
        (errors.SignAwaited, "unavailable_bucket", 503, "5"),
        (errors.Deferred, "archived_object", 502, None),
        (errors.StoreRefused, "bucket_refusal", 502, None),
        (errors.OtherOwner, "bucket_owner_conflict", 502, None),
        (errors.ObjectRefused, "object_refusal", 502, None),
        (errors.Occupied, "occupied_key", 502, None),
        (errors.ForeignObject, "occupied_key", 502, None),
        (errors.TooLarge, "oversized_object", 502, None),
        (errors.WrongBytes, "corrupt_object", 502, None),
        (errors.UserError, "conflicting_state", 409, None),
        (errors.IdentityError, "identity_mismatch", 409, None),
        (errors.ExportRefused, "refused_export", 409, None),
        (errors.ExportChanged, "version_conflict", 412, None),
        (errors.PolicyError, "invalid_policy", 422, None),
        (errors.NotPossible, "conflicting_state", 409, None),
        (errors.NotThere, "missing_resource", 404, None),
        (errors.Changed, "version_conflict", 412, None),
        (errors.TrashRefused, "refused_deletion", 409, None),
        (errors.ControlSocketClosed, "unavailable_nfs_server", 503, "5"),
        (errors.TryAgain, "busy_namespace", 503, "1"),
        (errors.SchemaError, "schema_mismatch", 409, None),
        (errors.AnotherServer, "other_server", 409, None),
        (errors.StoreError, "bucket_error", 502, None),
        (errors.NotFound, "missing_resource", 404, None),
        (errors.Stale, "missing_resource", 404, None),
        (errors.Exists, "existing_resource", 409, None),
        (errors.NotEmpty, "nonempty_directory", 409, None),
        (errors.Busy, "busy_file", 409, None),
        (errors.AccessDenied, "denied_access", 403, None),
        (errors.NotPermitted, "denied_access", 403, None),
        (errors.ReadOnly, "reserved_path", 403, None),
        (errors.NoSpace, "full_disk", 507, None),
        (errors.NameTooLong, "invalid_operation", 400, None),
    ],
)
def test_the_code_of_an_error(
    kind: type[errors.SpillwayError], code: str, status: int, again: str | None
) -> None:
    problem = problems.of(kind("what\nto do"))
    assert (problem.code, problem.status, problem.detail) == (code, status, "what to do")
    assert (problem.headers or {}).get("Retry-After") == again


def test_errors_that_take_more_than_a_message() -> None:
    wrong = errors.ConfigError("nfs.port", 0, "a port is wanted")
    assert problems.of(wrong).code == ProblemCode.INVALID_CONFIGURATION
    held = errors.InUse("/data", "spillway up", "4242")
    assert problems.of(held).code == ProblemCode.LOCKED_DATA_DIRECTORY


def test_the_status_of_the_framework_has_a_code() -> None:
    for status in (404, 405, 408, 413):
        assert problems.of_status(status).status == status
    assert problems.of_status(418) == ProblemCode.INVALID_REQUEST
