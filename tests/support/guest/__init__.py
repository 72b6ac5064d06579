"""Programs that run inside the client VM. They use only the standard library."""
