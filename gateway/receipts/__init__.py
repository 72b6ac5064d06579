"""Receipts: what a job can read of its checkpoints below ``/.spillway``, without any program.

``wanted.py`` says what should be there, ``tree.py`` reads what is there and changes it through the
door. ``keeper.py`` keeps the receipts of checkpoints, and ``status.py`` keeps ``status.json``.
"""
