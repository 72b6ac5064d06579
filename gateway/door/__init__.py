"""The door: other processes change names through the NFS server.

``opened`` (``door.py``) opens the door. ``frames.py`` has the frames on the socket, ``remote.py``
asks the NFS server. ``removal.py`` removes trees.
"""
