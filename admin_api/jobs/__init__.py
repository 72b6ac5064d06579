"""Work that takes longer than a request may: an id, progress, a result, and an end on request."""
