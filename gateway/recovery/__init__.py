"""Recovery: what brings the namespace back from the bucket, and proves that it can."""
