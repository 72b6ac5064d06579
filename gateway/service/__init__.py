"""Use cases with typed results: the only thing that the API, its pages and commands call."""
