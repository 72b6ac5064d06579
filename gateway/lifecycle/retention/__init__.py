"""Retention: which checkpoints are kept, deleted and evicted, by policies that people set."""
