"""Moves, deletions and checks in the bucket, which bring its objects in line with names."""
