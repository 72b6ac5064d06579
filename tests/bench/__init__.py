"""Measurements. Not part of the timed tests: numbers depend on the machine."""
