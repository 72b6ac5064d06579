"""Layer 0: the shape of the source itself."""
