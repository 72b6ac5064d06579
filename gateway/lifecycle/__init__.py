"""Life cycle of checkpoints after they are complete: retention, the trash and promotion."""
