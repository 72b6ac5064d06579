"""Plans jobs from what the database says. Each job checks its plan again."""
