"""What several tests of t0_tidy need."""
