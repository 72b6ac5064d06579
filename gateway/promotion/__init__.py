"""Promotions: copies of checkpoints that stay until a person demotes them.

``store.py`` has the rows, ``members.py`` says what is promoted, ``build.py`` makes the copy's rows
in the namespace, ``copier.py`` makes its objects, and ``duty.py`` does all of it, step by step.
"""
