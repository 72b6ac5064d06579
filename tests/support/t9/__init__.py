"""Helpers of several tests of t9_checkpoints."""
