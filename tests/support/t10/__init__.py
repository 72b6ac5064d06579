"""What several tests of t10_admin need."""
