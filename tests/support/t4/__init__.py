"""What several tests of t4_drain need."""
