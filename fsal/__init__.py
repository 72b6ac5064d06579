"""The FSAL: how nfs-ganesha reaches the namespace. ``native`` is its C side."""
