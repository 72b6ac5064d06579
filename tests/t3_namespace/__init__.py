"""Layer 3: the namespace, driven through its facade."""
