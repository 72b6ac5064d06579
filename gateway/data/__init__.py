"""The local data files and their stamp."""
