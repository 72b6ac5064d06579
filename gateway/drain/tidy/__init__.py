"""Brings what is in the bucket in line with names: moves, deletions, keys in doubt."""
