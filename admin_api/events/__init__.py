"""Server-sent events: what changes, while there are listeners."""
