"""The command line, `spillway`: sets a gateway up, runs it, and shows its state."""
