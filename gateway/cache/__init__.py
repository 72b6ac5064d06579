"""The local disk as a cache of the bucket: which files leave it, and how their bytes come back.

``evictor.py`` keeps room on the disk: ``candidates.py`` says which files may leave it and in which
order, ``eviction.py`` makes them absent through the door, and ``growth.py`` remembers how much room
a save needs. The hydrator brings bytes back: ``fetch.py`` gets and verifies blocks.
"""
