"""FSAL through which nfs-ganesha reaches the namespace. ``native`` is its C side."""
