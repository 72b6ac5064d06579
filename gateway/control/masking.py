"""Takes secrets out of what is shown. Pure."""

from __future__ import annotations

import re

MASK = "***"
# Up to the last @: a password with a slash must not be shown, however wrong such a URL is.
_USERINFO = re.compile(r"^([a-z][a-z0-9+.-]*://).*@", re.IGNORECASE | re.DOTALL)


def without_userinfo(url: str) -> str:
    """Return a URL without user and password, which stand before an @ (RFC 3986, 3.2.1)."""
    return _USERINFO.sub(rf"\1{MASK}@", url)
