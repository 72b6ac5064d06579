"""Measurements. They are no tests, because the numbers depend on the machine."""
