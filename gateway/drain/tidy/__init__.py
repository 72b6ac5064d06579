"""Brings the bucket in line with names: moves, deletions, and keys with indeterminate writes."""
