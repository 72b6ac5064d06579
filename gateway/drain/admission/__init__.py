"""Admission of the drain's jobs: claims under a lease, retries, and health of the bucket."""
