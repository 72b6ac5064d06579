"""Helpers of several tests of t5_cli."""
