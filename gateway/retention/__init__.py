"""Which checkpoints are kept, deleted and evicted, by policies that people set.

``policy.py`` reads a policy, ``planner.py`` decides by rows alone, and ``share.py`` says when a
person must approve; they are pure. ``store.py`` keeps the tables, ``planning.py`` reads what a plan
is made of, and ``applier.py`` does what the plan says, when ``law.py`` agrees.
"""
