"""Helpers of several tests of t0_tidy."""
