"""The door: how other processes change names, through the NFS server or, while it is down, alone.

``opened`` is the way in (``door.py``). ``frames.py`` is what crosses the socket, ``remote.py`` asks
the NFS server, ``direct.py`` runs the same requests under the data directory's lock.
"""
