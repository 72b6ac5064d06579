"""Which directories and files are checkpoints, how far each is, and what says so to others."""
