"""The drain: the daemon that makes the bucket hold what the namespace says.

``plan`` makes jobs from the database, ``admission`` admits them, ``worker.py`` runs them. ``send``
brings bytes into the bucket; ``tidy`` moves and deletes there.
"""
