"""What several tests of t3_namespace need."""
