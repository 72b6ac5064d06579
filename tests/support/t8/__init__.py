"""What several tests of t8_cold need."""
