"""Helpers of several tests of t7_nfs."""
