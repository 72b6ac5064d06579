"""Decides whether a job may run now, by claims under a lease, retries and health of the bucket."""
