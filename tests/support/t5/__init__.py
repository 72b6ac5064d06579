"""What several tests of t5_cli need."""
