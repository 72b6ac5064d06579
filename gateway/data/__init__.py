"""Local data files."""
