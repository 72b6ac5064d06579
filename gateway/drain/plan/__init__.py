"""Reads the database and makes jobs of what is to be done. Each job checks its plan again."""
