"""Layer 6: the boundary between C and Python, and the C side alone."""
