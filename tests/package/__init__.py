"""The Debian package: two builds give the same bytes."""
