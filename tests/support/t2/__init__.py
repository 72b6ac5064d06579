"""Helpers of several tests of t2_db."""
