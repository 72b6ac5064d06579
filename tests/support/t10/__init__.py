"""Helpers of several tests of t10_admin."""
