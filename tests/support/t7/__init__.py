"""What several tests of t7_nfs need."""
