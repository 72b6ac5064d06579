"""What several tests of t6_fsal need."""
