"""Layer 3: the namespace, called through its facade."""
