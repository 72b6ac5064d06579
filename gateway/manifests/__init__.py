"""Manifests: what a checkpoint consists of, in one object of the bucket that is written last.

``document.py`` makes the text, ``rows.py`` reads what it is made of, ``store.py`` puts and deletes
the objects, and ``writer.py`` keeps those of checkpoints in step with the catalogue. ``check.py``
compares a manifest with a bucket, and needs neither the database nor the data directory for it.
"""
