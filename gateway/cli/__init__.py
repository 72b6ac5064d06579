"""The command line, `spillway`: sets a gateway up, runs it, shows how it is."""
