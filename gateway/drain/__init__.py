"""The drain: the daemon that makes the bucket hold what the namespace says."""
