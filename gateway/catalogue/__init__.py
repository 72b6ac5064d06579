"""Catalogue of checkpoints: which directories and files are checkpoints, and how far each is.

Also what others are told of that: receipts below ``/.spillway``, and manifests in the bucket.
"""
