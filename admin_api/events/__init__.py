"""Server-sent events: what changes, while somebody listens."""
