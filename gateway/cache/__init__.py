"""The local disk as a cache of the bucket: which files leave it, and how their bytes come back.

``evictor.py`` keeps free space on the disk, and remembers how much a save needs; ``eviction.py``
says which files may leave the disk and in which order, and makes them absent over the control
socket. The hydrator brings bytes back: ``fetch.py`` gets and verifies blocks.
"""
