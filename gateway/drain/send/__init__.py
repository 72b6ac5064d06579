"""Uploads of the drain: intent, bytes and object of each file."""
