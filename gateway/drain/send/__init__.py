"""Uploads of the drain: brings the bytes of a file into the bucket by intent, bytes, object."""
