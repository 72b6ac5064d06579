"""The trash: deleted checkpoints, which a person can take back for a while."""
