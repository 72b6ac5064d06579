"""Tests of the cache: files are evicted, and their bytes come back verified."""
