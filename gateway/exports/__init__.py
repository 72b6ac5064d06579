"""Exports beside ``nfs.export``: directories that hosts may mount, changed while clients work.

``keeper.py`` is what commands and the API call. ``export.py`` has the checks, ``store.py`` the
rows, ``blocks.py`` renders them for NFS-Ganesha, and ``server.py`` has a running server take them.

An export is a directory, not a path: its clients keep it when it is renamed, and a new directory
under the old name is not exported.
"""
