"""Planning of the drain's jobs from the database. Each job checks its plan again."""
