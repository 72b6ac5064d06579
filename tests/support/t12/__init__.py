"""Helpers of several tests of t12_recovery."""
