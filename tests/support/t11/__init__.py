"""What several tests of t11_package need."""
