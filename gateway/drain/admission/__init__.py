"""Says whether a job may run now: claims under a lease, retries, health of the bucket."""
