"""What several tests of t2_db need."""
