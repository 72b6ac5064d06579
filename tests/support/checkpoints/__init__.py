"""Checkpoints for tests: what frameworks write, and a namespace whose catalogue follows it."""
