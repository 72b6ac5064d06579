"""Brings the bytes of a file into the bucket: intent, bytes, object."""
