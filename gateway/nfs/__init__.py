"""The NFS server: its configuration, and the exports that hosts mount."""
