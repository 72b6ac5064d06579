"""The configuration: settings, their checks, and the data directory they name."""
