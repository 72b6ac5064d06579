"""Helpers of several tests of t4_drain."""
