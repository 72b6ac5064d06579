"""Layer 4: the drain against real S3 servers."""
