"""What becomes of checkpoints: retention, the trash and promotion."""
