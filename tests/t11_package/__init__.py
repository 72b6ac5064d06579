"""The package and its units, as far as they can be checked without a machine of their own."""
