"""What several tests of t9_checkpoints need."""
