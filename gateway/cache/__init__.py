"""The process that brings the bytes of absent files back from the bucket."""
