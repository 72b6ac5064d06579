"""Helpers of several tests of t3_namespace."""
