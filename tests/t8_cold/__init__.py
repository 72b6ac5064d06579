"""Tests of absent files: their bytes come back from the bucket."""
