"""Brings the bucket in line with names: moves, deletions, and keys in doubt."""
