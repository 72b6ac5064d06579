"""Jobs, work that takes longer than a request may: an id, progress, a result, an end on request."""
