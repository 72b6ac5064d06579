"""Makes the Debian package: the pinned wheels, the tree that is installed, and the archive."""
