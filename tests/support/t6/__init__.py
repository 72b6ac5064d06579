"""Helpers of several tests of t6_fsal."""
