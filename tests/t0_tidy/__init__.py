"""Layer 0: the structure of the source."""
