"""The door: other processes change names through the NFS server or, while it is down, in its place.

``opened`` (``door.py``) opens the door. ``frames.py`` has the frames on the socket, ``remote.py``
asks the NFS server, and ``direct.py`` runs the same requests under the data directory's lock.
``removal.py`` removes trees.
"""
