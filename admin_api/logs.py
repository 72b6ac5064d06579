"""Log lines of the admin API: each has the id of the request that it belongs to."""

from __future__ import annotations

import logging
from contextvars import ContextVar

request_id: ContextVar[str] = ContextVar("request_id", default="-")
"""The id of the request that this thread or task works for."""

FORMAT = "%(asctime)s %(levelname)s request=%(request_id)s %(message)s"


class _WithRequest(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = request_id.get()
        return True


def install() -> None:
    """Give all lines of this process the id of their request."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(_WithRequest())
        handler.setFormatter(logging.Formatter(FORMAT))
