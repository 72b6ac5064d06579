"""The bucket: object keys of paths, and the few S3 requests that the gateway makes."""
