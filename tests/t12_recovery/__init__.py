"""Recovery: names in the bucket, restore, and the comparison of bucket and namespace."""
