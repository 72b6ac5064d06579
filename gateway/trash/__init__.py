"""The trash: checkpoints that were deleted, and that a person can take back for a while.

``trash.py`` puts a checkpoint there and takes it back, each with one rename through the door;
``expiry.py`` removes what has been there for long enough; ``actions.py`` records what leaves it;
``rows.py`` has the table.
"""
