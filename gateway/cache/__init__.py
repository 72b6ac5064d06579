"""The local disk as a cache of the bucket: which files leave it, and how their bytes come back.

``evictor.py`` keeps room on the disk: ``eviction.py`` says which files may leave it and in which
order, and makes them absent through the door. ``evictor.py`` also remembers how much room
a save needs. The hydrator brings bytes back: ``fetch.py`` gets and verifies blocks.
"""
