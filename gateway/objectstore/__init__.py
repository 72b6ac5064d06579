"""The bucket: how paths become keys, and the few S3 requests we make."""
