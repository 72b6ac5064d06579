"""What schemathesis does before each request of ``test_contract.py`` (its ``hooks``)."""

from __future__ import annotations

import re
import secrets
from typing import Any

import schemathesis

KEY = "Idempotency-Key"


@schemathesis.hook
def before_call(_context: Any, case: schemathesis.Case[Any], _kwargs: dict[str, Any]) -> None:
    """Give each request a key of its own: a key of another request is refused before anything else
    is looked at. Keys that are wrong stay as they are."""
    key = case.headers.get(KEY)
    if isinstance(key, str) and re.fullmatch("[ -~]{1,200}", key):
        case.headers[KEY] = secrets.token_hex(8)
