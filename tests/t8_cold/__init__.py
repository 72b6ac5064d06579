"""The local disk as a cache: eviction, cold reads and warm-up."""
