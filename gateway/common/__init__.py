"""Helpers for every package: clocks, files, text, units, errors. They know no configuration."""
