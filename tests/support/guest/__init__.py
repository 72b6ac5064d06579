"""Programs that run inside the client VM: standard library only."""
